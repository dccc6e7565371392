#include "stages/deepspeed/keys.h"

#include <algorithm>
#include <cctype>

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
  int distance = 3;
  std::string nearest;
  for (const std::string& other : names) {
    // The fewest insertions, deletions, replacements and swaps of neighbours (Damerau 1964).
    std::vector<std::vector<int>> d(name.size() + 1, std::vector<int>(other.size() + 1));
    for (size_t i = 0; i <= name.size(); ++i)
      for (size_t j = 0; j <= other.size(); ++j) {
        d[i][j] = int(std::max(i, j));
        if (i == 0 || j == 0) continue;
        const int replace = d[i - 1][j - 1] + (name[i - 1] != other[j - 1]);
        d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
        if (i > 1 && j > 1 && name[i - 1] == other[j - 2] && name[i - 2] == other[j - 1])
          d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    const int edits = d.back().back();
    if (edits < distance && 2 * edits < int(std::max(name.size(), other.size())))
      distance = edits, nearest = other;
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
