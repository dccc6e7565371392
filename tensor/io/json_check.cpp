#include "tensor/io/json_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tensor/error.h"

namespace zl {

using nlohmann::json;

// The library's parser keeps its state on the heap. Nothing is kept of what it reads.
void check_json(std::string_view text, const std::string& name, const JsonRules& rules) try {
  using Event = json::parse_event_t;
  std::vector<std::set<std::string>> open;  // the names of each open object; an array has none
  const auto take = [&](int depth, Event event, const json& value) {
    if (event == Event::key) {
      require_input(open[size_t(depth) - 1].insert(value.get<std::string>()).second, name,
                    ": the name ", value.dump(), " occurs twice");
    } else {  // an object or an array begins
      require_input(depth < rules.depth, name, " is nested deeper than ", rules.depth, " levels");
      open.resize(size_t(depth));
      open.emplace_back();
    }
    return false;
  };
  [[maybe_unused]] const json nothing = json::parse(text, take, true, rules.comments);
} catch (const json::parse_error& error) {
  const auto before = text.substr(0, error.byte);
  throw InputError(str(name, " is not valid JSON: error at byte ", error.byte, ", line ",
                       1 + std::ranges::count(before, '\n'),
                       error.byte > text.size() ? "; the text ends too early" : ""));
} catch (const json::out_of_range& error) {
  const std::string_view what = error.what();  // "[json.exception.…] number overflow parsing '1e9'"
  throw InputError(str(
      name, " is not valid JSON: a number is out of range: ", what.substr(what.rfind(' ') + 1)));
}

bool is_json(std::string_view text) try {
  check_json(text, "");
  return true;
} catch (const InputError&) {
  return false;
}

}  // namespace zl
