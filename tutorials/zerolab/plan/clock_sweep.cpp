#include <nlohmann/json.hpp>

#include "stages/variants/variants.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/plan/clock_section.h"

namespace zl::cli {
namespace {

// Groups are nodes, if there are several and all are full. hsdp may have another number of
// replicas, which must divide the ranks. False: the ranks cannot be grouped.
bool group_ranks(GptTrainingSpec& spec, const Machine& machine) {
  const int X = machine.ranks_per_node;
  const bool replicas = spec.engine.stage == StageKind::hsdp && spec.engine.replicas > 0;
  if (replicas) return spec.ranks % spec.engine.replicas == 0;
  spec.engine.ranks_per_node = X;
  return spec.ranks > X && spec.ranks % X == 0;
}

}  // namespace

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
      if (groups && !group_ranks(s, machine)) {
        row.push_back("-");
        continue;
      }
      const StepTime time = clock_step(s, machine, options.stragglers);
      const ClockTimes& t = time.times;
      row.push_back(milliseconds(t.seconds) +
                    (shortage(time, s, machine) == Shortage::none ? "" : " *"));
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
  return {"sweep",
          str("\nMilliseconds of a step on ", machine.name,
              " by number of ranks (*: does not fit; -: ranks that cannot be grouped):\n\n",
              table.text()),
          json.dump()};
}

}  // namespace zl::cli
