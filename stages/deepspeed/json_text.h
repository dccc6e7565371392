// JSON as people write it in configuration files, with the line of every value.
//
// DeepSpeed reads HJSON. We take the part of it that its users' files have: JSON, comments (//, /*
// */, #) and commas before a closing bracket. The JSON library knows no lines and none of these, so
// brackets and commas are read here; numbers and strings are still judged by the library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zl {

struct JsonMember;

struct JsonValue {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::string text;                 // of a string: its characters; of a number: as it is written
  std::vector<JsonValue> items;     // of an array
  std::vector<JsonMember> members;  // of an object, in the order of the text
  int line = 0;                     // where it stands, or its key if it has one; from 1
  int set = -1;                     // which --set it came from, if it did

  const JsonValue* find(std::string_view key) const;  // the first of that name, or null
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// A key that an object has more than once.
struct JsonDuplicate {
  std::string path;  // "zero_optimization.stage"
  int line = 0, first_line = 0;
};

struct JsonDocument {
  JsonValue root;
  std::vector<JsonDuplicate> duplicates;
};

inline constexpr int kJsonDepth = 64;  // levels of brackets, at most

// Throws InputError, one sentence that starts with "name:line: ", if the text is not what the first
// lines above say.
JsonDocument parse_json(std::string_view text, const std::string& name);

// The value in a sentence: `the string "32"`, `5.5`, `an object`. Long ones are cut.
std::string describe(const JsonValue& value);
// The text between double quotes, with escapes, cut if it is long.
std::string in_quotes(std::string_view text);

}  // namespace zl
