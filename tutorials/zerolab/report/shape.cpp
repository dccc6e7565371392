#include "tutorials/zerolab/report/shape.h"

#include <nlohmann/json.hpp>
#include <ranges>

#include "tensor/error.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShapeCheck {
  const std::string& begin;
  std::vector<const Json*> around = {};  // objects, outermost first

  void require(bool good, const std::string& path, const std::string& what) const {
    require_input(good, begin, ": ", path.empty() ? "it" : path, " is not ", what);
  }

  int64_t length_of(const std::string& list) const {
    for (const Json* object : around | std::views::reverse)
      if (object->contains(list) && object->at(list).is_array())
        return int64_t((*object)[list].size());
    return 0;
  }

  void value(const Json& json, std::string word, const std::string& path) const {
    const bool integer = json.is_number_integer();
    if (!word.starts_with('#'))
      return require(word == "text"      ? json.is_string()
                     : word == "integer" ? integer
                     : word == "boolean" ? json.is_boolean()
                     : word == "object"  ? json.is_object()
                                         : json.is_number() || json.is_null() || json.is_boolean(),
                     path, (word[0] == 'i' || word[0] == 'o' ? "an " : "a ") + word);
    const int64_t least = word.ends_with('?') ? -1 : 0;
    const std::string list = word.substr(1, word.size() - (least < 0 ? 2 : 1));
    require(integer && json >= least && json < length_of(list), path, "an index of " + list);
  }

  void list(const Json& json, const Json& shape, const std::string& path) {
    require(json.is_array(), path, "a list");
    const bool counted =
        shape.size() == 2 && shape[1].is_string() && shape[1].get<std::string>().starts_with('@');
    const bool tuple = shape.size() > 1 && !counted;
    const int64_t length = tuple     ? int64_t(shape.size())
                           : counted ? length_of(shape[1].get<std::string>().substr(1))
                                     : int64_t(json.size());
    require(int64_t(json.size()) == length, path, str("a list of ", length));
    for (size_t i = 0; i < json.size(); ++i)
      check(json[i], shape[tuple ? i : 0], str(path, "/", i));
  }

  void object(const Json& json, const Json& shape, const std::string& path) {
    require(json.is_object(), path, "an object");
    around.push_back(&json);
    for (const auto& [name, inner] : shape.items()) {
      const bool optional = name.ends_with('?');
      const std::string key = name.substr(0, name.size() - optional);
      if (name == "*") {
        for (const auto& [other, found] : json.items())
          if (!shape.contains(other)) check(found, inner, path + "/" + other);
        continue;
      }
      if (optional && json.value(key, Json()).is_null()) continue;
      require_input(json.contains(key), begin, ": ", path.empty() ? "it" : path, " has no \"", key,
                    "\"");
      check(json[key], inner, path + "/" + key);
    }
    around.pop_back();
  }

  void check(const Json& json, const Json& shape, const std::string& path) {
    if (shape.is_string()) return value(json, shape, path);
    if (shape.is_array()) return list(json, shape, path);
    object(json, shape, path);
  }
};

}  // namespace

void require_shape(const std::string& json, const std::string& shape, const std::string& begin) {
  ShapeCheck{begin}.check(Json::parse(json), Json::parse(shape), "");
}

}  // namespace zl::cli
