// The schema of a configuration: every key of DeepSpeed 0.19.8 that people write, and ours, with
// its type, its range, both defaults, and what zerolab does with it. Reading, checking, explaining
// and the table in tutorials/reference/configuration.md all come from these rows, so that none of
// them can tell another story.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zl {

struct ConfigType {
  enum class Kind { boolean, whole, number, text, choice, texts, betas, object, any };
  Kind kind;
  double least = -std::numeric_limits<double>::infinity(),
         most = std::numeric_limits<double>::infinity();
  const char* choices = "";  // of a choice: "none cpu nvme"
  bool nullable = false;     // DeepSpeed takes null too where it checks types
  bool strict = false;       // DeepSpeed checks this one itself: true is no number
};

constexpr ConfigType a_boolean() { return {ConfigType::Kind::boolean}; }
constexpr ConfigType a_whole(double least = 0,
                             double most = std::numeric_limits<double>::infinity()) {
  return {ConfigType::Kind::whole, least, most};
}
constexpr ConfigType any_whole() { return a_whole(-std::numeric_limits<double>::infinity()); }
constexpr ConfigType a_number(double least = -std::numeric_limits<double>::infinity(),
                              double most = std::numeric_limits<double>::infinity()) {
  return {ConfigType::Kind::number, least, most};
}
constexpr ConfigType a_text() { return {ConfigType::Kind::text}; }
constexpr ConfigType a_choice(const char* choices) {
  return {.kind = ConfigType::Kind::choice, .choices = choices};
}
constexpr ConfigType some_texts() { return {ConfigType::Kind::texts}; }
constexpr ConfigType an_object() { return {ConfigType::Kind::object}; }
constexpr ConfigType anything() { return {ConfigType::Kind::any}; }
constexpr ConfigType or_null(ConfigType type) {
  type.nullable = true;
  return type;
}
constexpr ConfigType strict(ConfigType type) {
  type.strict = true;
  return type;
}

// What zerolab does with a key.
enum class ConfigUse {
  honoured,
  later,    // noted: it has no effect yet
  noted,    // noted: it has no effect, for a reason
  refused,  // an error: it would change results, and zerolab does not do that
  dead      // DeepSpeed 0.19.8 itself refuses it
};

struct ConfigKey {
  const char* block;  // path of its object: "", "zero_optimization", "optimizer.params", …
  const char* key;
  ConfigType type;
  const char* deepspeed;  // its default as JSON; "": none
  const char* ours;       // our default; of a key that is not honoured: the value as which zerolab
                          // always works; "": none
  ConfigUse use;
  const char* text;       // honoured: what it says; else the reason
  const char* says = "";  // DeepSpeed's sentence for a value out of range; {} stands for the value

  std::string path() const { return block[0] == '\0' ? key : std::string(block) + "." + key; }
};

std::span<const ConfigKey> config_keys();  // in the order of the documentation
const ConfigKey* find_config_key(std::string_view block, std::string_view key);  // null: unknown
bool has_config_keys(std::string_view block);

// The rows of the schema, file by file.
std::span<const ConfigKey>
batch_config_keys();  // config_keys_training.cpp: batch, optimizer, scheduler, precision
std::span<const ConfigKey> zero_config_keys();  // config_keys_zero.cpp: zero_optimization and aio
std::span<const ConfigKey>
report_config_keys();  // config_keys_reports.cpp: what is printed and written, and "zerolab"
std::span<const ConfigKey> other_config_keys();  // config_keys_other.cpp: what zerolab has not

// How DeepSpeed takes the keys of a block.
struct ConfigBlockRule {
  bool checked;  // by pydantic: "2", 2.0 and true count as numbers, "yes" as true
  const char*
      unknown;  // its sentence for a key that it does not know; "": it ignores that silently
};
ConfigBlockRule config_block_rule(std::string_view block);

// What someone who wrote `key` in `block` may have meant: a key of that block that is at most two
// edits away. Empty: nothing.
std::string nearest_config_key(std::string_view block, std::string_view key);
// The blocks that have a key of this very name.
std::vector<std::string> config_blocks_of(std::string_view key);
// The nearest of `names`, at most two edits away; empty: none.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

// "whole number ≥ 1", "true or false": for tables.
std::string to_string(const ConfigType& type);
// The whole schema as Markdown tables, one for each block: what stands in
// tutorials/reference/configuration.md.
std::string config_keys_table();

}  // namespace zl
