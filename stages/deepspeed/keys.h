// The table of keys: each key of DeepSpeed 0.19.8 and of the "zerolab" block with the values that
// it takes, the member of a Config that it sets and DeepSpeed's default, or the reason why it has
// no effect.
//
// Reading, checking, `config explain` and the tables in tutorials/reference/configuration.md all
// use these rows, so they cannot disagree.
#pragma once

#include <charconv>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/json_text.h"

namespace zl {

// What zerolab does with a key.
enum class ConfigUse {
  honoured,
  noted,    // a note: no effect, for a reason
  refused,  // an error: the key would change results, or contradicts another
  dead,     // DeepSpeed 0.19.8 itself refuses the key: an error, or a warning if it is off
  block     // an object; other rows have its keys
};

// A member of one Config, which must outlive this.
struct ConfigMember {
  // Sets it to the value and returns ""; else returns which values fit: "a whole number of at
  // least 1". null fits none.
  std::function<std::string(const JsonValue&)> store;
  std::function<std::string()> show;    // its JSON. Empty: it only changes another key's default
  std::vector<std::string> names = {};  // the choices, if these are names
};

// A row. What a key sets is said in tutorials/reference/configuration.md, in the last column.
struct ConfigKey {
  std::string key;  // "lr"
  // None of a key that never has an effect. That of a block checks that the value is an object.
  ConfigMember member = {};
  std::string_view deepspeed = "";  // DeepSpeed's default as JSON; "": none
  struct Effect {
    ConfigUse use = ConfigUse::honoured;
    std::string reason = "";  // why it is not honoured
    // Of a key without a member: the value that says what zerolab always does, which needs no
    // finding.
    std::string_view always = "";
    bool any_value = false;  // `noted` has a note also if the value is the member's default
  } effect = {};
  std::string block = "";  // "optimizer.params"; "": the top level

  std::string path() const;   // "optimizer.params.lr"
  std::string type() const;   // "a whole number of at least 1", "anything"
  std::string value() const;  // the member's, or what zerolab always does; "": none
};

// All keys in the order of the documentation, then the blocks, which are keys of the object around
// them: a name that is close to a block's is found as any other. Members are those of `config`,
// which must outlive the rows; effects are as it is now. key_table.cpp has the rows.
std::vector<ConfigKey> config_keys(Config& config);
// Null: unknown.
const ConfigKey* find_key(const std::vector<ConfigKey>& keys, std::string_view block,
                          std::string_view key);
// As Markdown: a table for each block, and one of the keys without effect.
std::string config_keys_table();

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();  // of a range: no limit
bool in_range(double number, int64_t least, int64_t most);

// The closest of `names`, at most two edits away; "" if there is none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

std::string lower_case(std::string text);
// With the fewest digits that read back as the same number.
std::string shortest(auto number) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}

}  // namespace zl
