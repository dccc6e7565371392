#include <nlohmann/json.hpp>

#include "stages/variants/variants.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/plan/clock_section.h"

namespace zl::cli {

PlanSection sweep_section(const std::vector<StageKind>& stages, const GptTrainingSpec& spec,
                          const Machine& machine, const ClockFlags& options, std::string& csv) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  csv =
      "ranks,stage,seconds_per_step,compute_seconds,communication_seconds,"
      "exposed_communication_seconds,tokens_per_second_per_rank,mfu,peak_bytes\n";
  TextTable table;
  std::vector<std::string> titles = {"ranks"};
  for (const StageKind stage : stages) titles.push_back(name(stage));
  table.row(titles);
  for (const int ranks : options.sweep_ranks) {
    std::vector<std::string> row = {std::to_string(ranks)};
    for (const StageKind stage : stages) {
      GptTrainingSpec s = spec;
      s.ranks = ranks;
      s.engine.stage = stage;
      const Variant* variant = find_variant(stage);
      const bool groups = variant && variant->groups != VariantGroups::none;
      if (groups && (ranks <= machine.ranks_per_node || ranks % machine.ranks_per_node != 0)) {
        row.push_back("-");  // one node, or nodes that are not full
        continue;
      }
      if (groups) s.engine.ranks_per_node = machine.ranks_per_node, s.engine.replicas = 0;
      const StepTime time = clock_step(s, machine, options.stragglers);
      const ClockTimes& t = time.times;
      row.push_back(milliseconds(t.seconds) +
                    (s.device_memory > 0 && time.device_peak > s.device_memory ? " *" : ""));
      json.push_back({{"ranks", ranks},
                      {"stage", name(stage)},
                      {"seconds_per_step", t.seconds},
                      {"exposed_communication_seconds", t.exposed},
                      {"tokens_per_second_per_rank", time.tokens_per_second()},
                      {"peak_bytes", time.device_peak}});
      csv +=
          str(ranks, ",", name(stage), ",", t.seconds, ",", t.compute, ",", t.communication, ",",
              t.exposed, ",", time.tokens_per_second(), ",", time.mfu, ",", time.device_peak, "\n");
    }
    table.row(row);
  }
  return {
      "sweep",
      str("\nMilliseconds of a step on ", machine.name,
          " by number of ranks (*: does not fit; -: no full nodes to group):\n\n", table.text()),
      json.dump()};
}

}  // namespace zl::cli
