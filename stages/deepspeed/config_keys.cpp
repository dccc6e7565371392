#include "stages/deepspeed/config_keys.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tensor/error.h"

namespace zl {
namespace {

const std::vector<ConfigKey>& all_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys;
    for (const auto rows :
         {batch_config_keys(), zero_config_keys(), report_config_keys(), other_config_keys()}) {
      keys.insert(keys.end(), rows.begin(), rows.end());
    }
    return keys;
  }();
  return all;
}

// "bfloat16" is an older name of "bf16", and "tensor_parallel" in the block of that name one of
// "tp".
std::string_view true_name(std::string_view block) {
  return block == "bfloat16"                          ? "bf16"
         : block == "tensor_parallel.tensor_parallel" ? "tensor_parallel.tp"
                                                      : block;
}

// Levenshtein 1966: insertions, deletions and replacements.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// Keeps the nearest of the names it is shown.
struct Nearest {
  std::string_view wanted;
  size_t distance = 3;  // one more than counts
  std::string name;

  void show(std::string_view candidate) {
    const size_t longer = std::max(wanted.size(), candidate.size());
    if (longer - std::min(wanted.size(), candidate.size()) >= distance) return;
    if (const size_t d = edits(wanted, candidate); d < distance && 2 * d < longer) {
      distance = d;
      name = candidate;
    }
  }
};

}  // namespace

std::span<const ConfigKey> config_keys() { return all_keys(); }

const ConfigKey* find_config_key(std::string_view block, std::string_view key) {
  for (const ConfigKey& k : all_keys()) {
    if (true_name(block) == k.block && key == k.key) return &k;
  }
  return nullptr;
}

bool has_config_keys(std::string_view block) {
  return std::any_of(all_keys().begin(), all_keys().end(),
                     [&](const ConfigKey& k) { return true_name(block) == k.block; });
}

ConfigBlockRule config_block_rule(std::string_view block) {
  for (const char* checked :
       {"fp16", "bf16", "bfloat16", "comms_logger", "csv_monitor", "tensorboard", "wandb", "comet",
        "hybrid_engine", "compile", "timers.throughput"}) {
    if (block == checked) return {true, "Extra inputs are not permitted"};
  }
  if (block.starts_with("zero_optimization") || block.starts_with("tensor_parallel"))
    return {true, "Extra inputs are not permitted"};
  if (block == "optimizer.params" || block == "scheduler.params")
    return {false, "got an unexpected keyword argument"};
  return {false, ""};
}

std::string nearest_config_key(std::string_view block, std::string_view key) {
  Nearest nearest{key};
  for (const ConfigKey& k : all_keys()) {
    if (true_name(block) == k.block) nearest.show(k.key);
  }
  return nearest.name;
}

std::vector<std::string> config_blocks_of(std::string_view key) {
  std::vector<std::string> blocks;
  for (const ConfigKey& k : all_keys()) {
    if (key == k.key && k.use != ConfigUse::dead) blocks.push_back(k.block);
  }
  return blocks;
}

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  Nearest nearest{name};
  for (const std::string& n : names) nearest.show(n);
  return nearest.name;
}

namespace {

// A cell of a table: JSON in backquotes, nothing as a dash.
std::string cell(const char* json) { return json[0] == '\0' ? "–" : str("`", json, "`"); }

std::string what_is_done(const ConfigKey& key) {
  constexpr const char* begin[] = {
      "", "**no effect yet**: ", "**no effect**: ", "**refused**: ", "**dead**: "};
  return begin[int(key.use)] + std::string(key.text);
}

}  // namespace

std::string config_keys_table() {
  std::vector<std::string> blocks;
  for (const ConfigKey& k : all_keys()) {
    if (std::find(blocks.begin(), blocks.end(), k.block) == blocks.end()) blocks.push_back(k.block);
  }
  std::string text;
  for (const std::string& block : blocks) {
    text += str(
        text.empty() ? "" : "\n", "### ", block.empty() ? "Top level" : "`" + block + "`", "\n\n",
        "| key | type | DeepSpeed's default | ours | what zerolab does |\n|---|---|---|---|---|\n");
    for (const ConfigKey& k : all_keys()) {
      if (block != k.block) continue;
      text += str("| `", k.key, "` | ", to_string(k.type), " | ", cell(k.deepspeed), " | ",
                  cell(k.ours), " | ", what_is_done(k), " |\n");
    }
  }
  return text;
}

}  // namespace zl
