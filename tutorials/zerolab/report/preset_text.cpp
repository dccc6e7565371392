#include <algorithm>

#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_table.h"

namespace zl::cli {

std::vector<PresetPlan> predict_presets(std::vector<const Preset*> presets, const Config& config,
                                        const TrainingSpec& spec) {
  if (!config.as.empty()) presets.push_back(find_preset(config.as));
  std::ranges::sort(presets);
  presets.erase(std::unique(presets.begin(), presets.end()), presets.end());
  std::vector<PresetPlan> plans;
  for (const Preset* preset : presets)
    plans.push_back(predict(*preset, spec, config.persistence_threshold));
  return plans;
}

std::string preset_text(const std::vector<PresetPlan>& presets) {
  if (presets.empty()) return "";
  StageTable<PresetPlan> table(presets, "predicted, not run");
  for (const auto& [title, column] :
       {std::pair{"memory of rank 0 in steady state", &MemoryRow::predicted_rest},
        {"each use at its own peak", &MemoryRow::predicted_peak}}) {
    table.heading(title);
    for (int i = 0; i < kMemoryUses; ++i) {
      const auto bytes = [i, column = column](const PresetPlan& p) {
        return bytes_of(p.memory, Pool::device, MemoryUse(i), column);
      };
      if (std::ranges::any_of(presets, bytes))
        table.row(str("  ", name(MemoryUse(i))),
                  [&](const PresetPlan& p) { return human_bytes(bytes(p)); });
    }
  }
  table.heading("");
  table.row("sent per rank and step", [](const PresetPlan& p) {
    return human_bytes(sent_bytes(p.traffic, &TrafficRow::predicted_sent));
  });
  std::string text = table.text() + "\n";
  for (const PresetPlan& p : presets)
    text += str(p.stage->name, " ", p.stage->difference, ". Left out: ", p.stage->left_out, ".\n");
  return text +
         "e, g, c: bytes of a parameter, of a gradient, of a gradient while it is communicated. A: "
         "micro-batches.\n\n";
}

}  // namespace zl::cli
