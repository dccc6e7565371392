// The schema of a configuration: each key of DeepSpeed 0.19.8 and of the "zerolab" block with its
// type, its range, the member of Config that it sets, DeepSpeed's default, and the reason if it has
// no effect.
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

struct ConfigType {
  enum class Kind { boolean, whole, seed, number, text, choice, texts, betas, object, any };
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  Kind kind;
  double least = -kNoLimit, most = kNoLimit;
  std::string_view choices = "";  // of a choice: "none cpu nvme"; true and false may be among them
  std::vector<std::string> (*names)() = nullptr;  // of a choice, instead of choices
};

// What zerolab does with a key.
enum class ConfigUse {
  honoured,
  noted,    // a note: no effect, for a reason
  refused,  // an error: the key would change results, and zerolab cannot honour it
  dead      // DeepSpeed 0.19.8 itself refuses the key: an error, or a warning if it is off
};

struct ConfigEffect {
  ConfigUse use;
  // Of a key without effect: the value that says what zerolab always does, as JSON, so that this
  // value needs no finding. "": none.
  std::string_view ours = "";
  // Of an honoured key: set the member of Config to a value of the key's type, and give it as JSON.
  // Null where a rule reads the key (stages/deepspeed/reading.h), or where others determine it.
  void (*store)(const JsonValue& value, Config& config) = nullptr;
  std::string (*show)(const Config& config) = nullptr;
};

// When an honoured key is used, and what is said where it is given otherwise.
struct ConfigCondition {
  bool (*holds)(const Config& config);
  std::string_view reason;  // why it is not used
  // A note, for any value or for values other than the default; an error; or a note for a number
  // out of range, which is an error only where the key is used.
  enum class Otherwise { note, note_other_values, note_range, error } otherwise;
};

struct ConfigKey {
  std::string_view block, key;  // "optimizer.params" and "lr"; the block is "" at the top level
  ConfigType type;
  std::string_view deepspeed;  // DeepSpeed's default as JSON; "": none
  ConfigEffect effect;
  std::string_view text;                  // honoured: what the key sets; otherwise the reason
  const ConfigCondition* when = nullptr;  // null: always
  // The name under which an honoured key is known: "stage3_max_reuse_distance" also for
  // "max_reuse_distance".
  std::string_view first_name = "";

  std::string path() const;  // "optimizer.params.lr"
  std::string name() const;  // the path with the first name
  std::string ours() const;  // zerolab's default or what it always does, as JSON; "": none
  bool is_second_name() const { return key != first_name; }
  bool defaults_differ() const;  // both exist, and are not the same value
};

// All keys in the order of the documentation. key_table.cpp has the rows.
std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view block, std::string_view key);  // null: unknown

// Whether DeepSpeed declares types in this block (with pydantic).
bool is_typed_block(std::string_view block);
// Whether an unknown key in this block is an error. In other blocks DeepSpeed ignores it.
bool refuses_unknown_keys(std::string_view block);

// The value as DeepSpeed takes it: where it declares types, "2" is a number, and "true" and 1 are
// booleans.
JsonValue as_declared(const ConfigKey& key, const JsonValue& value);
// "expected a number of at least 0, not -1"; "" if the key takes the value. The caller handles null
// and "auto".
std::string misfit(const ConfigKey& key, const JsonValue& value);
// Whether the value equals a default of the key.
bool equals(const JsonValue& value, std::string_view json);
// Whether it is a number of the key's kind, whatever its range.
bool is_of_kind(const ConfigKey& key, const JsonValue& value);

// The whole number that a value is: 5e8 is one.
std::optional<int64_t> to_whole(const JsonValue& value);
uint64_t to_seed(const JsonValue& value);

// The closest of `names`, at most two edits away; "" if there is none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);
// The names of the keys in a block; of all blocks that have a key of this name.
std::vector<std::string> config_names_in(std::string_view block);
std::vector<std::string_view> config_blocks_of(std::string_view key);

// The schema as Markdown, one table per block.
std::string config_keys_table();

std::vector<std::string_view> words(std::string_view text);  // separated by one space each
std::string lower_case(std::string text);
std::string shortest(double number);  // with the fewest digits that read back as the same number

}  // namespace zl
