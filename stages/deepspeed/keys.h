// The schema of a configuration: each key of DeepSpeed 0.19.8 and of the "zerolab" block with its
// type, its range, both defaults and what zerolab does with it.
//
// Reading, checking, `config explain` and the table in tutorials/reference/configuration.md all use
// these rows, so they cannot disagree.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/json_text.h"

namespace zl {

struct ConfigType {
  enum class Kind { boolean, whole, seed, number, text, path, choice, texts, betas, object, any };
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  Kind kind;
  double least = -kNoLimit, most = kNoLimit;
  std::string_view choices = "";  // of a choice: "none cpu nvme"
  bool or_boolean = false;        // a choice that may also be true or false
};

// What zerolab does with a key.
enum class ConfigUse {
  honoured,
  later,    // a note: no effect yet
  noted,    // a note: no effect, for a reason
  refused,  // an error: the key would change results, and zerolab cannot honour it
  dead      // DeepSpeed 0.19.8 itself refuses the key: an error, or a warning if it is off
};

struct ConfigKey {
  std::string_view block, key;  // "optimizer.params" and "lr"; the block is "" at the top level
  ConfigType type;
  std::string_view deepspeed;  // DeepSpeed's default as JSON; "": none
  // zerolab's default as JSON. Of a key without effect: the value that says what zerolab always
  // does, so that this value needs no finding. "": none.
  std::string_view ours;
  ConfigUse use;
  std::string_view text;  // honoured: what the key sets; otherwise the reason

  std::string path() const;  // "optimizer.params.lr"
};

// All keys in the order of the documentation. key_table.cpp has the rows.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view block, std::string_view key);  // null: unknown

// Whether DeepSpeed declares types in this block (with pydantic): a number in quotes counts as the
// number.
bool is_typed_block(std::string_view block);
// Whether an unknown key in this block is an error. In other blocks DeepSpeed ignores it.
bool refuses_unknown_keys(std::string_view block);

// A value as a number; nothing if it is none. 5e8 is a whole number.
std::optional<int64_t> to_whole(const JsonValue& value, bool typed_block);
std::optional<uint64_t> to_seed(const JsonValue& value);
std::optional<double> to_number(const JsonValue& value, bool typed_block);
// "expected a number of at least 0, not -1"; "" if the key takes the value. The caller handles null
// and "auto".
std::string misfit(const ConfigKey& key, const JsonValue& value);
// Whether the value equals a default of the key.
bool equals(const ConfigKey& key, const JsonValue& value, std::string_view json);

// The key of the block that is closest to `key`, at most two edits away; "" if there is none.
std::string nearest_config_key(std::string_view block, std::string_view key);
// The closest of `names`, at most two edits away; "" if there is none.
std::string nearest_name(std::string_view name, std::span<const std::string> names);
// The blocks that have a key of exactly this name.
std::vector<std::string_view> config_blocks_of(std::string_view key);

// The schema as Markdown, one table per block.
std::string config_keys_table();

std::vector<std::string_view> words(std::string_view text);  // separated by one space each
std::string lower_case(std::string text);
std::string shortest(double number);  // with the fewest digits that read back as the same number

}  // namespace zl
