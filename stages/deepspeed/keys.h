// The table of keys: each key of DeepSpeed 0.19.8 and of the "zerolab" block with the values that
// it takes, the member of a Config that it sets and DeepSpeed's default, or the reason why it has
// no effect.
//
// Reading, checking, `config explain` and the table in tutorials/reference/configuration.md all use
// these rows, so they cannot disagree.
#pragma once

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
  refused,  // an error: the key would change results, and zerolab cannot honour it
  dead,     // DeepSpeed 0.19.8 itself refuses the key: an error, or a warning if it is off
  block     // an object; other rows have its keys
};

// Whether an honoured key is used, and what gives the reason where it is given otherwise: an error,
// a note, or a note if its value is another than the default.
struct ConfigCondition {
  bool holds = true;
  std::string_view reason = "";
  enum class Otherwise { error, note, note_other_values } otherwise = Otherwise::note_other_values;
};

// Whether a value has the type of a member and is in its range; for a sentence, which values do and
// are.
struct ConfigFit {
  bool fits;
  std::string type;  // "a whole number", "one of "log", "linear""
  std::vector<std::string> choices = {};
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
// Of a number: whether it is in a range too.
ConfigFit in_range(ConfigFit fit, const JsonValue& value, int64_t least, int64_t most);

// A member of one Config, which must outlive this.
struct ConfigMember {
  std::function<ConfigFit(const JsonValue&)> store;  // sets it to a value that fits
  std::function<std::string()> show;  // its JSON. Empty: it only changes another key's default
};

// A row. What a key sets is said in tutorials/reference/configuration.md, in the last column.
struct ConfigKey {
  std::string key;                  // "lr"
  ConfigMember member = {};         // none of a key without effect
  std::string_view deepspeed = "";  // DeepSpeed's default as JSON; "": none
  ConfigCondition when = {};
  ConfigUse use = ConfigUse::honoured;
  // Of a key without effect: the value that says what zerolab always does, which needs no finding;
  // and why there is no effect.
  std::string_view always = "", reason = "";
  std::string block = "";  // "optimizer.params"; "": the top level

  std::string path() const;   // "optimizer.params.lr"
  std::string type() const;   // "a whole number of at least 1", "anything"
  std::string value() const;  // the member's, or what zerolab always does; "": none
};

// All keys in the order of the documentation, then the blocks, which are keys of the object around
// them: a name that is close to a block's is found as any other. Members are those of `config`,
// which must outlive the rows; conditions are as it is now. key_table.cpp has the rows.
std::vector<ConfigKey> config_keys(Config& config);
// Null: unknown.
const ConfigKey* find_key(const std::vector<ConfigKey>& keys, std::string_view block,
                          std::string_view key);
// As Markdown: a table for each block, and one of the keys without effect.
std::string config_keys_table();

// The closest of `names`, at most two edits away; "" if there is none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

std::string lower_case(std::string text);
std::string shortest(double number);  // with the fewest digits that read back as the same number

}  // namespace zl
