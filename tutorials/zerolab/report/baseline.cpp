#include "tutorials/zerolab/report/baseline.h"

#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/json_check.h"
#include "tensor/io/small_file.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

// "zero2, memory of rank 1, device, gradient": the labels of an item of a list, or its number.
std::string label(const std::string& list, const Json& item, size_t index) {
  if (list == "loss" || list == "grad_norm") return list + ", step " + std::to_string(index + 1);
  if (!item.is_object()) return list + " of rank " + std::to_string(index);
  if (item.contains("stage") && item["stage"].is_string()) return item["stage"];
  std::string text = list;
  for (const char* key : {"rank", "pool", "use", "collective", "purpose"})
    if (item.contains(key))
      text += ", " + (item[key].is_string() ? item[key].get<std::string>()
                                            : std::string(key) + " " + item[key].dump());
  return text;
}

// Times differ from run to run.
bool is_time(const std::string& key) {
  return key == "seconds_per_step" || key == "communication_time";
}

// Where the two differ first and how; "" if they are equal. `where` names both.
std::string difference(const std::string& where, const Json& stored, const Json& now) {
  const std::string before = where.empty() ? "" : where + ": ";
  if (stored.is_object() && now.is_object()) {
    for (const auto& [key, value] : stored.items()) {
      if (is_time(key)) continue;
      if (!now.contains(key)) return before + key + " is in the baseline only";
      if (!value.is_array() || !now[key].is_array()) {
        const std::string text = difference(before + key, value, now[key]);
        if (!text.empty()) return text;
        continue;
      }
      if (value.size() != now[key].size())
        return before + key + " has " + std::to_string(value.size()) +
               " entries in the baseline and " + std::to_string(now[key].size()) + " now";
      for (size_t i = 0; i < value.size(); ++i) {
        const std::string item =
            key == "stages" ? label(key, value[i], i) : before + label(key, value[i], i);
        if (const std::string text = difference(item, value[i], now[key][i]); !text.empty())
          return text;
      }
    }
    for (const auto& [key, value] : now.items())
      if (!stored.contains(key) && !is_time(key)) return before + key + " is not in the baseline";
    return "";
  }
  if (stored == now) return "";
  return before + stored.dump() + " in the baseline, " + now.dump() + " now";
}

}  // namespace

Baseline::Baseline(std::string path) : path_(std::move(path)) {
  text_ = read_small_file(path_, {"baseline", 256 << 20});
  check_json(text_, "--baseline " + path_);
  const Json stored = Json::parse(text_);
  const auto has = [&](const char* key, const char* type) {
    return stored.contains(key) && stored[key].type_name() == std::string(type);
  };
  require_input(stored.is_object() && stored.contains("command") && stored["command"] == "compare",
                "--baseline ", path_, " is not a compare.json of 'zerolab compare --out'");
  require_input(stored.contains("schema") && stored["schema"] == 1, "--baseline ", path_,
                " has another schema than 1, which this program reads");
  for (const auto& [key, type] : {std::pair{"ranks", "number"},
                                  {"steps", "number"},
                                  {"parameters", "number"},
                                  {"precision", "string"},
                                  {"device", "string"},
                                  {"backend", "string"},
                                  {"bits_promised", "boolean"},
                                  {"model", "object"},
                                  {"data", "object"},
                                  {"settings", "object"},
                                  {"stages", "array"}})
    require_input(has(key, type), "--baseline ", path_, " lacks '", key, "', or it is no ", type);
}

void Baseline::require_same_settings(const std::string& settings) const {
  Json stored = Json::parse(text_), now = Json::parse(settings);
  for (Json* document : {&stored, &now})  // sizes and the hash of the data decide, not their names
    for (const auto& [part, name] :
         {std::pair{"model", "name"}, {"data", "name"}, {"settings", "version"}})
      if (document->contains(part)) (*document)[part].erase(name);
  for (const auto& [key, value] : now.items()) {
    if (key == "ok" || !stored.contains(key)) continue;
    const std::string text = difference(key, stored[key], value);
    require_input(text.empty(), "--baseline ", path_, " is of another run: ", text);
  }
}

std::string Baseline::first_difference(const std::string& document) const {
  const Json stored = Json::parse(text_), now = Json::parse(document);
  return difference("", {{"stages", stored["stages"]}}, {{"stages", now["stages"]}});
}

}  // namespace zl::cli
