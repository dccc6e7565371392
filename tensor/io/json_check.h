// What every JSON file of a user must satisfy before it becomes values.
#pragma once

#include <string>
#include <string_view>

namespace zl {

inline constexpr int kJsonDepth = 64;  // nested arrays and objects, at most

struct JsonRules {
  int depth = kJsonDepth;
  bool comments = false;  // whether // and /* */ are allowed
};

// Throws InputError with one sentence that begins with `name` unless the text is one JSON value
// that is not nested deeper, has no name twice in an object and no number out of range. The
// library's parser then throws nothing, and needs no deep stack for what it returns. The check
// keeps nothing of what it reads but the names in the objects that are open.
void check_json(std::string_view text, const std::string& name, const JsonRules& rules = {});
bool is_json(std::string_view text);  // whether check_json() throws nothing

}  // namespace zl
