// The schema of a configuration: each key of DeepSpeed 0.19.8 and of the "zerolab" block with the
// values that it takes, the member of Config that it sets and DeepSpeed's default, or the reason
// why it has no effect.
//
// Reading, checking, `config explain` and the table in tutorials/reference/configuration.md all use
// these rows, so they cannot disagree.
#pragma once

#include <limits>
#include <optional>
#include <span>
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
  dead      // DeepSpeed 0.19.8 itself refuses the key: an error, or a warning if it is off
};

// When an honoured key is used, and what gives the reason where it is given otherwise: an error, a
// note, or a note if its value is another than the default.
struct ConfigCondition {
  bool (*holds)(const Config& config);
  std::string_view reason;
  enum class Otherwise { error, note, note_other_values } otherwise = Otherwise::note_other_values;
};

// Whether a value has the type of a member and is in its range; for a sentence, which values do and
// are.
struct ConfigFit {
  bool fits;
  std::string type;  // "a whole number", "one of "log", "linear""
  std::vector<std::string> choices = {};
};

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Of a number: whether it is in a range too.
ConfigFit in_range(ConfigFit fit, const JsonValue& value, int64_t least, int64_t most);

struct ConfigMember {
  // Sets it to a value that fits; else the Config must not be used.
  ConfigFit (*store)(const JsonValue& value, Config& config) = nullptr;
  // Gives it as JSON. Null of a key that only changes another key's default.
  std::string (*show)(const Config& config) = nullptr;
};

struct ConfigKey {
  std::string_view block, key;  // "optimizer.params" and "lr"; the block is "" at the top level
  ConfigMember member;          // none of a key without effect
  std::string_view deepspeed;   // DeepSpeed's default as JSON; "": none
  std::string_view text;        // honoured: what the key sets; otherwise the reason
  const ConfigCondition* when = nullptr;  // null: always
  ConfigUse use = ConfigUse::honoured;
  // Of a key without effect: the value that says what zerolab always does, which needs no finding.
  std::string_view always = "";

  std::string path() const;  // "optimizer.params.lr"
  std::string type() const;  // "a whole number of at least 1", "anything"
  std::string ours() const;  // zerolab's default, or what it always does; "": none
};

// All keys in the order of the documentation. key_table.cpp has the rows.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view block, std::string_view key);  // null: unknown
bool is_config_block(std::string_view path);  // whether keys are in it

// Whether DeepSpeed declares types in this block (with pydantic).
bool is_typed_block(std::string_view block);
// Stores the value of an honoured key, which is neither null nor "auto". If it does not fit, the
// Config must not be used, and misfit() says why: "expected a number of at least 0, not -1".
ConfigFit store(const ConfigKey& key, const JsonValue& value, Config& config);
std::string misfit(const ConfigFit& fit, const JsonValue& value);

// The whole number that a value is: 5e8 is one.
std::optional<int64_t> to_whole(const JsonValue& value);

// The closest of `names`, at most two edits away; "" if there is none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

// The schema as Markdown, one table per block.
std::string config_keys_table();

std::string lower_case(std::string text);
std::string shortest(double number);  // with the fewest digits that read back as the same number

}  // namespace zl
