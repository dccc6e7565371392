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

struct JsonMember;

struct JsonValue {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::string text;                 // the characters of a string; a number as it was written
  std::vector<JsonValue> items;     // of an array
  std::vector<JsonMember> members;  // of an object, in the order of the text
  int line = 0;                     // from 1; a member has the line of its key
  int set = -1;                     // index of the --set that gave the value; -1: the file

  const JsonValue* find(std::string_view key) const;  // the first member of that name, or null
  bool is_null() const { return kind == Kind::null; }
  bool is_auto() const { return kind == Kind::string && text == "auto"; }
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Throws InputError with one sentence that starts with "name:line: " if the text is not JSON as
// described above or has a key twice, or with "name is empty" if there is no value.
// `set`: of all values.
JsonValue parse_json(std::string_view text, const std::string& name, int set = -1);

// The value in a sentence: `the string "32"`, `5.5`, `an object`. Long ones are cut.
std::string describe(const JsonValue& value);
// The text between double quotes, with escapes, cut after `longest` bytes.
std::string in_quotes(std::string_view text, size_t longest = 48);

}  // namespace zl
