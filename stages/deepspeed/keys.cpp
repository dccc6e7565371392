#include "stages/deepspeed/keys.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "tensor/error.h"

namespace zl {

std::string lower_case(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool in_range(double number, int64_t least, int64_t most) {
  return number >= double(least) && (most == kMost || number <= double(most));
}

std::string ConfigKey::path() const { return block.empty() ? key : block + "." + key; }

std::string ConfigKey::type() const { return member.store ? member.store({}) : "anything"; }

std::string ConfigKey::value() const {
  return member.show ? member.show() : std::string(effect.always);
}

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
    const auto [shorter, longer] = std::minmax({name.size(), other.size()});
    if (longer - shorter >= distance) continue;
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
  std::string text, section, names;
  for (size_t i = 0; keys[i].effect.use != ConfigUse::block; ++i) {
    const ConfigKey& k = keys[i];
    const ConfigKey::Effect &effect = k.effect, &next = keys[i + 1].effect;
    const bool member = bool(k.member.store);
    const std::string here = !member           ? "Keys without effect"
                             : k.block.empty() ? "Top level"
                                               : cell(k.block);
    if (here != section)
      text += str(section.empty() ? "" : "\n", "### ", here, "\n\n",
                  member ? "| key | type | DeepSpeed's default | ours |\n|---|---|---|---|\n"
                         : "| keys | ours | why |\n|---|---|---|\n");
    section = here;
    names += str(names.empty() ? "" : ", ", "`", member ? k.key : k.path(), "`");
    // A row has all keys of a reason.
    if (!member && next.reason == effect.reason && next.always == effect.always) continue;
    text += "| " + names + " | ";
    text +=
        member ? str(k.type(), " | ", cell(k.deepspeed), " | ", cell(k.value()), " |\n")
               : str(cell(effect.always), " | ", use[int(effect.use)], ": ", effect.reason, " |\n");
    names.clear();
  }
  return text;
}

}  // namespace zl
