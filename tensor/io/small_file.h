// A whole file that people write, such as a configuration, and what every JSON file of a user must
// satisfy before it becomes values.
#pragma once

#include <string>
#include <string_view>

namespace zl {

// What is read, for messages: "configuration", and the bytes that no such file exceeds.
struct SmallFile {
  const char* what;
  size_t most;  // [B]
};

// Throws InputError with one sentence if the file cannot be read, is a folder, or is larger. A pipe
// or device must deliver something within two seconds.
std::string read_small_file(const std::string& path, const SmallFile& file);

inline constexpr int kJsonDepth = 64;  // nested arrays and objects, at most

// Throws InputError with one sentence that begins with `name` unless the text is one JSON value
// that is not nested deeper, has no name twice in an object and no number out of range. The
// library's parser then throws nothing, and needs no deep stack for what it returns. The check
// keeps nothing of what it reads but the names in the objects that are open. `comments`: whether //
// and /* */ are allowed.
void check_json(std::string_view text, const std::string& name, bool comments = false);
bool is_json(std::string_view text);  // whether check_json() throws nothing

}  // namespace zl
