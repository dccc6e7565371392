#include "stages/deepspeed/keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>

#include "tensor/error.h"

namespace zl {

std::string lower_case(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string shortest(double number) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}

ConfigFit in_range(ConfigFit fit, const JsonValue& value, int64_t least, int64_t most) {
  const double n = value.number;
  fit.fits = fit.fits && n >= double(least) && (most == kMost || n <= double(most));
  fit.type += most < kMost ? str(" from ", least, " to ", most) : str(" of at least ", least);
  return fit;
}

std::string ConfigKey::path() const { return block.empty() ? key : block + "." + key; }

std::string ConfigKey::type() const { return member.store ? member.store({}).type : "anything"; }

std::string ConfigKey::value() const { return member.show ? member.show() : std::string(always); }

const ConfigKey* find_key(const std::vector<ConfigKey>& keys, std::string_view block,
                          std::string_view key) {
  for (const ConfigKey& k : keys)
    if (k.block == block && k.key == key) return &k;
  return nullptr;
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
        diagonal = std::exchange(row[j + 1], std::min({replaced, row[j + 1] + 1, row[j] + 1}));
      }
    }
    if (row.back() < distance && 2 * row.back() < longer) distance = row.back(), nearest = other;
  }
  return nearest;
}

std::string config_keys_table() {
  constexpr const char* use[] = {"", "no effect", "refused", "dead"};
  const auto cell = [](std::string_view json) { return json.empty() ? "–" : str("`", json, "`"); };
  Config defaults;
  const auto keys = config_keys(defaults);
  std::string text, names;
  for (size_t i = 0; keys[i].use != ConfigUse::block; ++i) {
    const ConfigKey &k = keys[i], &next = keys[i + 1];
    if (k.use != ConfigUse::honoured) {  // a row has all keys of a reason
      names += str(names.empty() ? "" : ", ", "`", k.path(), "`");
      if (next.reason == k.reason && next.always == k.always) continue;
      text +=
          str("| ", names, " | ", cell(k.always), " | ", use[int(k.use)], ": ", k.reason, " |\n");
      names.clear();
      continue;
    }
    if (i == 0 || keys[i - 1].block != k.block)
      text += str(i == 0 ? "" : "\n", "### ", k.block.empty() ? "Top level" : cell(k.block),
                  "\n\n| key | type | DeepSpeed's default | ours |\n|---|---|---|---|\n");
    text += str("| `", k.key, "` | ", k.type(), " | ", cell(k.deepspeed), " | ", cell(k.value()),
                " |\n");
    if (next.use != ConfigUse::honoured)
      text += "\n### Keys without effect\n\n| keys | ours | why |\n|---|---|---|\n";
  }
  return text;
}

}  // namespace zl
