// JSON as people write it in configuration files, with the line of every key.
//
// DeepSpeed reads HJSON. zerolab reads the part of it that users' files have: JSON with comments
// (//, /* */, #) and trailing commas.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace zl {

// Where the value of each path is given: "ds.json:7", or the --set or flag. "": of all.
using Places = std::map<std::string, std::string>;

// The text's value as plain JSON. Each key gets its place: the name and the line, from 1. Throws
// InputError with one sentence that starts with "name:line: " if the text is not JSON as described
// above or has a key twice, with "name is empty" if there is no value, or with the line of a number
// that no double holds.
// Whole numbers keep 64 bits; larger ones and those with a dot or an exponent become doubles, so
// that 5e8 is 500000000.0. Members of an object are in the order of their keys.
std::string plain_json(std::string_view text, const std::string& name, Places& places);

// "optimizer.params"; a key that is empty or has a dot itself is in quotes.
std::string path_of(const std::string& block, const std::string& key);
// The path in a sentence: a long one is cut.
std::string shown_path(const std::string& path);

// The value in a sentence: `the string "32"`, `5.5`, `an object`. Long ones are cut.
std::string describe(const std::string& json);
// The characters of a string; of others the JSON.
std::string text_of(const std::string& json);
// The text between double quotes, with escapes, cut after `longest` bytes.
std::string in_quotes(std::string_view text, size_t longest = 48);

}  // namespace zl
