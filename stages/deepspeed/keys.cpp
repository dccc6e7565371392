#include "stages/deepspeed/keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "tensor/error.h"

namespace zl {
namespace {

using Kind = ConfigType::Kind;
using Json = JsonValue::Kind;

// The block that has the rows: "bfloat16" and "tensor_parallel.tensor_parallel" are second names.
std::string_view row_block(std::string_view block) {
  if (block == "bfloat16") return "bf16";
  return block == "tensor_parallel.tensor_parallel" ? "tensor_parallel.tp" : block;
}

// The value of the text if all of it is one number.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool in_range(const ConfigType& type, std::optional<double> number) {
  return number && *number >= type.least && *number <= type.most;
}

// DeepSpeed compares choices of the top level in lower case.
bool is_choice(const ConfigKey& key, const JsonValue& value) {
  if (value.kind == Json::boolean) return key.type.or_boolean;
  const std::string text = key.block.empty() ? lower_case(value.text) : value.text;
  const auto choices = words(key.type.choices);
  return value.kind == Json::string &&
         std::find(choices.begin(), choices.end(), text) != choices.end();
}

// An array of strings; where DeepSpeed declares no types, also one string.
bool are_texts(const JsonValue& value, bool typed_block) {
  if (value.kind == Json::string) return !typed_block;
  return value.kind == Json::array &&
         std::all_of(value.items.begin(), value.items.end(),
                     [](const JsonValue& item) { return item.kind == Json::string; });
}

bool are_betas(const JsonValue& value) {
  return value.items.size() == 2 &&
         std::all_of(value.items.begin(), value.items.end(), [](const JsonValue& item) {
           return item.kind == Json::number && item.number >= 0 && item.number < 1;
         });
}

bool fits(const ConfigKey& key, const JsonValue& value) {
  const bool typed = is_typed_block(key.block);
  switch (key.type.kind) {
    case Kind::boolean: return value.kind == Json::boolean;
    case Kind::whole: return in_range(key.type, to_whole(value, typed));
    case Kind::seed: return to_seed(value).has_value();
    case Kind::number: return in_range(key.type, to_number(value, typed));
    case Kind::text: return value.kind == Json::string;
    case Kind::path:
      return value.kind == Json::string && value.text.find('\0') == std::string::npos;
    case Kind::choice: return is_choice(key, value);
    case Kind::texts: return are_texts(value, typed);
    case Kind::betas: return are_betas(value);
    case Kind::object: return value.kind == Json::object;
    case Kind::any: return true;
  }
  return true;
}

// "a whole number of at least 1", "true or false".
std::string describe(const ConfigType& type) {
  std::string range;
  if (type.least != -ConfigType::kNoLimit)
    range = type.most == ConfigType::kNoLimit
                ? " of at least " + shortest(type.least)
                : " from " + shortest(type.least) + " to " + shortest(type.most);
  std::string choices;
  for (const std::string_view choice : words(type.choices))
    choices += str(choices.empty() ? "" : ", ", "\"", choice, "\"");
  switch (type.kind) {
    case Kind::boolean: return "true or false";
    case Kind::whole: return "a whole number" + range;
    case Kind::seed: return "a whole number from 0 to 2^64 - 1";
    case Kind::number: return "a number" + range;
    case Kind::text: return "a string";
    case Kind::path: return "a string without zero bytes";
    case Kind::choice: return "one of " + choices + (type.or_boolean ? ", true, false" : "");
    case Kind::texts: return "an array of strings";
    case Kind::betas: return "an array of two numbers from 0 to below 1";
    case Kind::object: return "an object";
    case Kind::any: return "anything";
  }
  return "";
}

// Levenshtein's distance: insertions, deletions and replacements.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (const char c : a) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (c == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find(' ', at), text.size());
    all.push_back(text.substr(at, end - at));
  }
  return all;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string shortest(double number) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}

std::string ConfigKey::path() const {
  return block.empty() ? std::string(key) : str(block, ".", key);
}

const ConfigKey* find_config_key(std::string_view block, std::string_view key) {
  for (const ConfigKey& k : config_keys())
    if (k.block == row_block(block) && k.key == key) return &k;
  return nullptr;
}

bool is_typed_block(std::string_view block) {
  constexpr std::string_view others[] = {"fp16",         "bf16",        "bfloat16",
                                         "comms_logger", "csv_monitor", "tensorboard"};
  return block.starts_with("zero_optimization") || block.starts_with("tensor_parallel") ||
         std::find(std::begin(others), std::end(others), block) != std::end(others);
}

bool refuses_unknown_keys(std::string_view block) {
  return is_typed_block(block) || block.ends_with(".params") || block == "zerolab";
}

std::optional<int64_t> to_whole(const JsonValue& value, bool typed_block) {
  if (value.kind != Json::number && !(typed_block && value.kind == Json::string))
    return std::nullopt;
  if (const auto whole = parse_number<int64_t>(value.text)) return whole;
  constexpr double limit = 9223372036854775808.0;  // 2^63
  const double n = value.number;
  const bool whole = value.kind == Json::number && n == std::floor(n) && std::abs(n) < limit;
  return whole ? std::optional(int64_t(n)) : std::nullopt;
}

std::optional<uint64_t> to_seed(const JsonValue& value) {
  if (value.kind == Json::number)
    if (const auto seed = parse_number<uint64_t>(value.text)) return seed;
  const auto whole = to_whole(value, false);
  return whole && *whole >= 0 ? std::optional(uint64_t(*whole)) : std::nullopt;
}

std::optional<double> to_number(const JsonValue& value, bool typed_block) {
  if (value.kind == Json::number) return value.number;
  const auto number = parse_number<double>(value.text);
  return typed_block && value.kind == Json::string && number && std::isfinite(*number)
             ? number
             : std::nullopt;
}

std::string misfit(const ConfigKey& key, const JsonValue& value) {
  if (fits(key, value)) return "";
  return str("expected ", describe(key.type), ", not ", describe(value));
}

bool equals(const ConfigKey& key, const JsonValue& value, std::string_view json) {
  if (json.empty()) return false;
  const JsonValue wanted = parse_json(json, "schema");
  if (wanted.kind == Json::number)
    return to_number(value, is_typed_block(key.block)) == wanted.number;
  return value.kind == wanted.kind && value.boolean == wanted.boolean &&
         lower_case(value.text) == wanted.text;
}

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  size_t distance = 3;
  std::string nearest;
  for (const std::string& candidate : names) {
    const size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) >= distance) continue;
    const size_t d = edits(name, candidate);
    if (d >= distance || 2 * d >= longer) continue;
    distance = d;
    nearest = candidate;
  }
  return nearest;
}

std::string nearest_config_key(std::string_view block, std::string_view key) {
  std::vector<std::string> keys;
  for (const ConfigKey& k : config_keys())
    if (k.block == row_block(block)) keys.emplace_back(k.key);
  return nearest_name(key, keys);
}

std::vector<std::string_view> config_blocks_of(std::string_view key) {
  std::vector<std::string_view> blocks;
  for (const ConfigKey& k : config_keys())
    if (k.key == key && k.use != ConfigUse::dead) blocks.push_back(k.block);
  return blocks;
}

std::string config_keys_table() {
  constexpr const char* use[] = {
      "", "**no effect yet**: ", "**no effect**: ", "**refused**: ", "**dead**: "};
  const auto cell = [](std::string_view json) { return json.empty() ? "–" : str("`", json, "`"); };
  std::vector<std::string_view> blocks;
  for (const ConfigKey& k : config_keys())
    if (std::find(blocks.begin(), blocks.end(), k.block) == blocks.end()) blocks.push_back(k.block);
  std::string text;
  for (const std::string_view block : blocks) {
    text +=
        str(text.empty() ? "" : "\n", "### ", block.empty() ? "Top level" : str("`", block, "`"),
            "\n\n| key | type | DeepSpeed's default | ours | what zerolab does |\n"
            "|---|---|---|---|---|\n");
    for (const ConfigKey& k : config_keys())
      if (k.block == block)
        text += str("| `", k.key, "` | ", describe(k.type), " | ", cell(k.deepspeed), " | ",
                    cell(k.ours), " | ", use[int(k.use)], k.text, " |\n");
  }
  return text;
}

}  // namespace zl
