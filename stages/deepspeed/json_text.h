// JSON as people write it in configuration files, with the line of every value.
//
// DeepSpeed reads HJSON. zerolab reads the part of it that users' files have: JSON with comments
// (//, /* */, #) and trailing commas.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/io/json_check.h"  // kJsonDepth

namespace zl {

struct JsonValue {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  // The characters of a string; of a number, a boolean and null those of the file; of others none.
  std::string text;
  double number = 0;
  std::string key;               // of a member of an object
  std::vector<JsonValue> items;  // of an array or an object, in the order of the text
  int line = 0;                  // from 1; a member has the line of its key; 0: not in a file
  std::string where;             // "ds.json:7", or the --set or flag that gave the value

  const JsonValue* find(std::string_view key) const;  // the member of that name, or null
  bool is_auto() const { return kind == Kind::string && text == "auto"; }
  bool is_absent() const { return kind == Kind::null || is_auto(); }
};

// Throws InputError with one sentence that starts with "name:line: " if the text is not JSON as
// described above or has a key twice, or with "name is empty" if there is no value.
// `where`: of all values; empty: "name:line" of each.
JsonValue parse_json(std::string_view text, const std::string& name, const std::string& where = "");

// The value in a sentence: `the string "32"`, `5.5`, `an object`. Long ones are cut.
std::string describe(const JsonValue& value);
// The text between double quotes, with escapes, cut after `longest` bytes.
std::string in_quotes(std::string_view text, size_t longest = 48);

}  // namespace zl
