#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/plan/clock_section.h"

namespace zl::cli {
namespace {

// Groups are nodes, if there are several and all are full. hsdp may have another number of
// replicas, which must divide the ranks. False: the ranks cannot be grouped.
bool group_ranks(GptTrainingSpec& spec, const Machine& machine) {
  const bool replicas = spec.engine.stage == StageKind("hsdp") && spec.engine.replicas > 0;
  if (replicas) return spec.ranks % spec.engine.replicas == 0;
  group_by_nodes(spec, machine);
  return machine.fills_nodes(spec.ranks);
}

}  // namespace

PlanSection sweep_section(const std::vector<StageKind>& stages, const GptTrainingSpec& spec,
                          const Machine& machine, const ClockFlags& options, std::string& csv) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  csv =
      "ranks,stage,seconds_per_step,compute_seconds,communication_seconds,"
      "exposed_communication_seconds,tokens_per_second_per_rank,mfu,peak_bytes,fits,"
      "expected_error\n";
  TextTable table;
  std::vector<std::string> titles = {"ranks"};
  for (const StageKind stage : stages) titles.push_back(name(stage));
  titles.push_back("expected error");
  table.row(titles);
  Progress progress(std::ssize(options.sweep_ranks) * std::ssize(stages), options.quiet);
  for (const int ranks : options.sweep_ranks) {
    std::vector<std::string> row = {std::to_string(ranks)};
    const ExpectedError expected = expected_step_error(machine_data(machine), ranks);
    for (const StageKind stage : stages) {
      progress.item(str("a step of ", name(stage), " on ", plural(ranks, "rank")));
      GptTrainingSpec s = spec;
      s.ranks = ranks;
      s.engine.stage = stage;
      if (file_of(stage).groups != VariantGroups::none && !group_ranks(s, machine)) {
        row.push_back("-");
        continue;
      }
      const StepTime time = clock_step(s, machine, options.stragglers);
      const ClockTimes& t = time.times;
      const bool fits = shortage(time, s, machine) == Shortage::none;
      row.push_back(milliseconds(t.seconds) + (fits ? "" : " *"));
      json.push_back({{"ranks", ranks},
                      {"stage", name(stage)},
                      {"seconds_per_step", t.seconds},
                      {"compute_seconds", t.compute},
                      {"communication_seconds", t.communication},
                      {"exposed_communication_seconds", t.exposed},
                      {"tokens_per_second_per_rank", time.tokens_per_second()},
                      {"mfu", time.mfu},
                      {"peak_bytes", time.device_peak},
                      {"fits", fits},
                      {"expected_error", expected.error}});
      csv += str(ranks, ",", name(stage));
      for (const double number :
           {t.seconds, t.compute, t.communication, t.exposed, time.tokens_per_second(), time.mfu})
        csv += "," + digits(number, 17);
      csv += str(",", time.device_peak, ",", fits ? "yes" : "no", ",", expected.error, "\n");
    }
    row.push_back(format("%.0f %%", 100 * expected.error) + (expected.order_only ? " +" : ""));
    table.row(row);
  }
  progress.clear();
  return {"sweep",
          str("\nMilliseconds of a step on ", machine.name,
              " by number of ranks (*: does not fit; -: not several full nodes to group;\n+: on so "
              "many "
              "ranks trust only the order):\n\n",
              table.text()),
          json.dump()};
}

}  // namespace zl::cli
