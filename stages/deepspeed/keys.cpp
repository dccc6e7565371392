#include "stages/deepspeed/keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "tensor/error.h"

namespace zl {
ConfigFit in_range(ConfigFit fit, const JsonValue& value, int64_t least, int64_t most) {
  const bool limited = most != kNoLimit;
  const double n = value.number;
  fit.fits = fit.fits && n >= double(least) && (!limited || n <= double(most));
  fit.type += limited ? str(" from ", least, " to ", most) : str(" of at least ", least);
  return fit;
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

std::string ConfigKey::type() const {
  Config unused;
  return member.store ? member.store({}, unused).type : "anything";
}

std::string ConfigKey::ours() const {
  return member.show ? member.show(Config{}) : std::string(always);
}

const ConfigKey* find_config_key(std::string_view block, std::string_view key) {
  for (const ConfigKey& k : config_keys())
    if (k.block == block && k.key == key) return &k;
  return nullptr;
}

bool is_config_block(std::string_view path) {
  return !path.empty() && std::ranges::count(config_keys(), path, &ConfigKey::block) > 0;
}

bool is_typed_block(std::string_view block) {
  constexpr std::string_view others[] = {"fp16", "bf16", "comms_logger", "csv_monitor",
                                         "tensorboard"};
  return block.starts_with("zero_optimization") || block.starts_with("tensor_parallel") ||
         std::ranges::count(others, block) > 0;
}

std::optional<int64_t> to_whole(const JsonValue& value) {
  if (value.kind != JsonValue::Kind::number) return std::nullopt;
  int64_t whole = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, whole);
  if (error == std::errc() && stop == end) return whole;
  const double n = value.number;
  return n == std::floor(n) && std::abs(n) < 0x1p63 ? std::optional(int64_t(n)) : std::nullopt;
}

ConfigFit store(const ConfigKey& key, const JsonValue& value, Config& config) {
  const ConfigFit fit = key.member.store(value, config);
  const bool is_word = value.text == "true" || value.text == "false";
  if (fit.fits || !is_word || !is_typed_block(key.block)) return fit;
  return key.member.store({.kind = JsonValue::Kind::boolean, .text = value.text}, config);
}

std::string misfit(const ConfigFit& fit, const JsonValue& value) {
  const std::string nearest = nearest_name(value.text, fit.choices);
  return str("expected ", fit.type, ", not ", describe(value),
             nearest.empty() ? "" : str("; did you mean \"", nearest, "\"?"));
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  size_t distance = 3;
  std::string nearest;
  for (const std::string& other : names) {
    const size_t longer = std::max(name.size(), other.size());
    if (longer - std::min(name.size(), other.size()) >= distance) continue;
    // Levenshtein's distance: insertions, deletions and replacements, row by row.
    std::vector<size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), size_t(0));
    for (const char c : name) {
      size_t diagonal = row[0]++;
      for (size_t j = 0; j < other.size(); ++j) {
        const size_t replaced = diagonal + (c == other[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
      }
    }
    if (row.back() < distance && 2 * row.back() < longer) distance = row.back(), nearest = other;
  }
  return nearest;
}

std::string config_keys_table() {
  constexpr const char* use[] = {"", "no effect", "refused", "dead"};
  const auto cell = [](std::string_view json) { return json.empty() ? "–" : str("`", json, "`"); };
  std::string text, names;
  const auto keys = config_keys();
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& k = keys[i];
    if (k.use != ConfigUse::honoured) {  // a row has all keys of a reason
      names += str(names.empty() ? "" : ", ", "`", k.path(), "`");
      if (i + 1 < keys.size() && keys[i + 1].text == k.text && keys[i + 1].always == k.always)
        continue;
      text += str("| ", names, " | ", cell(k.always), " | ", use[int(k.use)], ": ", k.text, " |\n");
      names.clear();
      continue;
    }
    if (i == 0 || keys[i - 1].block != k.block)
      text += str(i == 0 ? "" : "\n", "### ", k.block.empty() ? "Top level" : cell(k.block),
                  "\n\n| key | type | DeepSpeed's default | ours | what the key sets |\n"
                  "|---|---|---|---|---|\n");
    text += str("| `", k.key, "` | ", k.type(), " | ", cell(k.deepspeed), " | ", cell(k.ours()),
                " | ", k.text, " |\n");
    if (keys[i + 1].use != ConfigUse::honoured)
      text += "\n### Keys without effect\n\n| keys | ours | why |\n|---|---|---|\n";
  }
  return text;
}

}  // namespace zl
