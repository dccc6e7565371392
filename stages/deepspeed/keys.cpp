// What is printed about keys: suggestions, the tables of all keys, the values of one configuration.

#include "stages/deepspeed/keys.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "tensor/error.h"

namespace zl {

std::string lower_case(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string ConfigKey::path() const { return block.empty() ? key : block + "." + key; }

std::string ConfigKey::type() const { return member.store({}); }

std::string ConfigKey::value() const { return member.show ? member.show() : ""; }

const ConfigKey* find_key(const std::vector<ConfigKey>& keys, std::string_view block,
                          std::string_view key) {
  for (const ConfigKey& k : keys)
    if (k.block == block && k.key == key) return &k;
  return nullptr;
}

bool needs_full_recompute(const Config& c) { return c.cpu_checkpointing || c.checkpoints > 0; }

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
  for (const std::string& other : names)
    if (nearest.empty() && name.size() > 3 && other.starts_with(name)) nearest = other;
  return nearest;
}

std::string config_keys_table() {
  const auto cell = [](const std::string& json) { return json.empty() ? "–" : "`" + json + "`"; };
  Config defaults;
  std::string text, section = "none";
  for (const ConfigKey& k : config_keys(defaults)) {
    if (!k.member.store) break;
    if (k.block != section)
      text += str(text.empty() ? "### " : "\n### ", k.block.empty() ? "Top level" : cell(k.block),
                  "\n\n| key | type | DeepSpeed's default | ours |\n|---|---|---|---|\n");
    section = k.block;
    text += str("| ", cell(k.key), " | ", k.type(), " | ", cell(k.deepspeed), " | ",
                cell(k.value()), " |\n");
  }
  text += "\n### Keys without effect\n\n| keys | why |\n|---|---|\n";
  std::string why;
  for (const ConfigKey& k : keys_without_effect()) {
    const std::string name = cell(k.path() + (k.always.empty() ? "" : "=" + k.always)),
                      before = std::exchange(why, str(k.unused.refused ? "refused" : "no effect",
                                                      ": ", k.unused.reason));
    text += why == before    ? ", " + name
            : before.empty() ? "| " + name
                             : " | " + before + " |\n| " + name;
  }
  text += " | " + why + " |\n";
  return text;
}

std::vector<ConfigValue> effective_values(const LoadedConfig& loaded) {
  Config config = loaded.config, defaults;
  const std::vector<ConfigKey> keys = config_keys(config), ours = config_keys(defaults);
  std::vector<ConfigValue> all;
  std::string off = "none";  // the block that "enabled", its first key, switches off
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    if (!key.member.show || key.unused.refused || key.block == off) continue;
    const std::string path = key.path(), value = key.value(), default_value = ours[i].value();
    const bool differ = !key.deepspeed.empty() && key.deepspeed != default_value,
               theirs = differ && config.defaults == "deepspeed";
    const auto find = [&](const auto& of, const std::string& other) {
      return of.contains(path) ? of.at(path) : other;
    };
    const std::string origin =
        find(loaded.origins, theirs ? "default: zerolab.defaults is \"deepspeed\"" : "default");
    const std::string automatic = find(loaded.automatic, "");
    if (key.key == "enabled" && value == "false") off = key.block;
    all.push_back({path, value,
                   automatic.empty() ? origin : str("auto in ", automatic, ": ", origin),
                   default_value, key.deepspeed, differ});
  }
  return all;
}

}  // namespace zl
