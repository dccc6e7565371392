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

// The value of the text if all of it is one number.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool in_range(const ConfigType& type, double number) {
  return number >= type.least && number <= type.most;
}

std::vector<std::string> choices(const ConfigType& type) {
  if (type.names) return type.names();
  const auto all = words(type.choices);
  return {all.begin(), all.end()};
}

// DeepSpeed compares choices of the top level and the optimizer's type in lower case.
bool is_choice(const ConfigKey& key, const JsonValue& value) {
  const bool any_case = key.block.empty() || key.block == "optimizer";
  const auto shape = [&](const std::string& s) { return any_case ? lower_case(s) : s; };
  const std::string text = value.kind == Json::boolean ? describe(value) : value.text;
  return (value.kind == Json::string || value.kind == Json::boolean) &&
         std::ranges::any_of(choices(key.type), [&](const std::string& choice) {
           return shape(choice) == shape(text);
         });
}

// An array of strings; where DeepSpeed declares no types, also one string.
bool are_texts(const JsonValue& value, bool typed_block) {
  if (value.kind == Json::string) return !typed_block;
  return value.kind == Json::array && std::ranges::all_of(value.items, [](const JsonValue& item) {
           return item.kind == Json::string;
         });
}

bool are_betas(const JsonValue& value) {
  return value.items.size() == 2 && std::ranges::all_of(value.items, [](const JsonValue& item) {
           return item.kind == Json::number && item.number >= 0 && item.number < 1;
         });
}

bool is_seed(const JsonValue& value) {
  return value.kind == Json::number &&
         (parse_number<uint64_t>(value.text) || to_whole(value).value_or(-1) >= 0);
}

bool fits(const ConfigKey& key, const JsonValue& value) {
  switch (key.type.kind) {
    case Kind::boolean: return value.kind == Json::boolean;
    case Kind::whole:
    case Kind::number: return is_of_kind(key, value) && in_range(key.type, value.number);
    case Kind::seed: return is_seed(value);
    case Kind::text:
      return value.kind == Json::string && value.text.find('\0') == std::string::npos;
    case Kind::choice: return is_choice(key, value);
    case Kind::texts: return are_texts(value, is_typed_block(key.block));
    case Kind::betas: return are_betas(value);
    case Kind::object: return value.kind == Json::object;
    case Kind::any: return true;
  }
  return true;
}

// "a whole number of at least 1", "true or false".
std::string describe(const ConfigType& type) {
  std::string range, all;
  if (type.least != -ConfigType::kNoLimit)
    range = type.most == ConfigType::kNoLimit
                ? " of at least " + shortest(type.least)
                : " from " + shortest(type.least) + " to " + shortest(type.most);
  for (const std::string& name : choices(type))
    all += (all.empty() ? "" : ", ") +
           (name == "true" || name == "false" ? name : str("\"", name, "\""));
  switch (type.kind) {
    case Kind::boolean: return "true or false";
    case Kind::whole: return "a whole number" + range;
    case Kind::seed: return "a whole number from 0 to 2^64 - 1";
    case Kind::number: return "a number" + range;
    case Kind::text: return "a string without zero bytes";
    case Kind::choice: return "one of " + all;
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

std::string ConfigKey::name() const {
  return block.empty() ? std::string(first_name) : str(block, ".", first_name);
}

std::string ConfigKey::ours() const {
  return effect.show ? effect.show(Config{}) : std::string(effect.ours);
}

bool ConfigKey::defaults_differ() const {
  const std::string o = ours();
  return !o.empty() && !deepspeed.empty() && o != deepspeed &&
         !equals(parse_json(deepspeed, "schema"), o);
}

const ConfigKey* find_config_key(std::string_view block, std::string_view key) {
  for (const ConfigKey& k : config_keys())
    if (k.block == block && k.key == key) return &k;
  return nullptr;
}

bool is_typed_block(std::string_view block) {
  constexpr std::string_view others[] = {"fp16", "bf16", "comms_logger", "csv_monitor",
                                         "tensorboard"};
  return block.starts_with("zero_optimization") || block.starts_with("tensor_parallel") ||
         std::ranges::count(others, block) > 0;
}

bool refuses_unknown_keys(std::string_view block) {
  return is_typed_block(block) || block.ends_with(".params") || block == "zerolab";
}

std::optional<int64_t> to_whole(const JsonValue& value) {
  if (const auto whole = parse_number<int64_t>(value.text)) return whole;
  constexpr double limit = 9223372036854775808.0;  // 2^63
  const double n = value.number;
  return n == std::floor(n) && std::abs(n) < limit ? std::optional(int64_t(n)) : std::nullopt;
}

uint64_t to_seed(const JsonValue& value) {
  const auto seed = parse_number<uint64_t>(value.text);
  return seed ? *seed : uint64_t(*to_whole(value));
}

bool is_of_kind(const ConfigKey& key, const JsonValue& value) {
  return value.kind == Json::number && (key.type.kind == Kind::number || to_whole(value));
}

JsonValue as_declared(const ConfigKey& key, const JsonValue& value) {
  JsonValue declared = value;
  if (value.text.empty() || !is_typed_block(key.block)) return declared;
  const auto is_one_of = [text = " " + lower_case(value.text) + " "](std::string_view words) {
    return words.find(text) != words.npos;
  };
  if (key.type.kind == Kind::boolean) {
    declared.boolean = is_one_of(" true yes on y t 1 ");
    if (declared.boolean || is_one_of(" false no off n f 0 ")) declared.kind = Json::boolean;
  } else if (key.type.kind == Kind::whole || key.type.kind == Kind::number) {
    const auto number = parse_number<double>(value.text);
    const bool whole = parse_number<int64_t>(value.text).has_value();
    if (number && std::isfinite(*number) && (whole || key.type.kind == Kind::number))
      declared.kind = Json::number, declared.number = *number;
  }
  return declared;
}

std::string misfit(const ConfigKey& key, const JsonValue& value) {
  if (fits(key, value)) return "";
  const std::string nearest = key.type.kind == Kind::choice && value.kind == Json::string
                                  ? nearest_name(value.text, choices(key.type))
                                  : "";
  return str("expected ", describe(key.type), ", not ", describe(value),
             nearest.empty() ? "" : str("; did you mean \"", nearest, "\"?"));
}

bool equals(const JsonValue& value, std::string_view json) {
  if (json.empty()) return false;
  const JsonValue wanted = parse_json(json, "schema");
  if (value.kind != wanted.kind) return false;
  return wanted.kind == Json::number
             ? value.number == wanted.number
             : value.boolean == wanted.boolean && lower_case(value.text) == wanted.text;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
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

std::vector<std::string> config_names_in(std::string_view block) {
  std::vector<std::string> names;
  for (const ConfigKey& k : config_keys())
    if (k.block == block) names.emplace_back(k.key);
  return names;
}

std::vector<std::string_view> config_blocks_of(std::string_view key) {
  std::vector<std::string_view> blocks;
  for (const ConfigKey& k : config_keys())
    if (k.key == key && k.effect.use != ConfigUse::dead) blocks.push_back(k.block);
  return blocks;
}

std::string config_keys_table() {
  constexpr const char* use[] = {"", "**no effect**: ", "**refused**: ", "**dead**: "};
  const auto cell = [](std::string_view json) { return json.empty() ? "–" : str("`", json, "`"); };
  std::vector<std::string_view> blocks;
  for (const ConfigKey& k : config_keys())
    if (std::ranges::count(blocks, k.block) == 0) blocks.push_back(k.block);
  std::string text;
  for (const std::string_view block : blocks) {
    text +=
        str(text.empty() ? "" : "\n", "### ", block.empty() ? "Top level" : str("`", block, "`"),
            "\n\n| key | type | DeepSpeed's default | ours | what zerolab does |\n"
            "|---|---|---|---|---|\n");
    for (const ConfigKey& k : config_keys())
      if (k.block == block)
        text += str("| `", k.key, "` | ", describe(k.type), " | ", cell(k.deepspeed), " | ",
                    cell(k.ours()), " | ", use[int(k.effect.use)], k.text, " |\n");
  }
  return text;
}

}  // namespace zl
