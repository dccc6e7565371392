// zerolab plan: each stage's bytes and traffic, by formula and dry run.

#include "stages/predict/plan.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/plan/clock_section.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPlanRanks = 4;
constexpr int64_t kMostRanks = 1 << 20;  // nothing runs, so there may be many

using Wish = RunOptions::DeviceWish;

struct PlanOptions : RunOptions {
  std::vector<StageKind> stages;  // empty: the paper's four
  std::vector<const Preset*> presets;
  bool any_stage = false;  // --stages is not given
  std::optional<double> parameters;
  ClockFlags clock;
};

Transport transport_of(const PlanOptions& options) {
  constexpr auto threads = Transport::threads;
  constexpr Transport of_wish[] = {threads, threads, Transport::nccl, Transport::mpi};
  return of_wish[int(options.backend)];
}

int list_machines(bool json) {
  Json machines = Json::array();
  for (const Machine& m : shipped_machines())
    machines.push_back(
        {{"name", m.name}, {"ranks_per_node", m.ranks_per_node}, {"title", m.title}});
  print_document(Json{{"schema", 1}, {"command", "plan"}, {"ok", true}, {"machines", machines}},
                 json);
  return kFine;
}

// Where the ranks compute, as the flags say. It need not be here.
DeviceKind planned_device(const PlanOptions& options, const std::optional<Machine>& machine) {
  const Transport transport = transport_of(options);
  const bool gpus = machine                             ? machine->rank.device == DeviceKind::cuda
                    : options.device == Wish::automatic ? transport == Transport::nccl
                                                        : options.device == Wish::cuda;
  if (transport == (gpus ? Transport::mpi : Transport::nccl))
    throw UsageError(str("--backend ", name(transport), " is for ranks on ", gpus ? "CPUs" : "GPUs",
                         ", but ", machine ? "--machine" : "--as", " says ", gpus ? "GPUs" : "CPUs",
                         "; leave one of them out"));
  return gpus ? DeviceKind::cuda : DeviceKind::cpu;
}

GptTrainingSpec planned_spec(const PlanOptions& options, GptTrainingSpec spec,
                             const std::optional<Machine>& machine) {
  spec.ranks = options.source.ranks;
  spec.transport = transport_of(options);
  spec.device = planned_device(options, machine);
  spec.reference = options.device == Wish::reference;
  if (machine) {
    if (spec.device_memory == 0) spec.device_memory = int64_t(machine->rank.memory_bytes);
    if (options.clock.overlap) set_overlap(spec.engine, *options.clock.overlap);
    // Groups of variants are nodes, but with replicas their number says how large they are.
    if (spec.engine.ranks_per_node == 0 && spec.engine.replicas == 0 &&
        machine->fills_nodes(spec.ranks))
      spec.engine.ranks_per_node = machine->ranks_per_node;
  }
  // Traffic is counted in bytes times ranks, in 64 bits.
  const double parameters = double(spec.model.parameters());
  require_input(16.0 * 3 * parameters * spec.ranks * double(spec.engine.accumulation) < 9e18,
                "the traffic of ", parameters, " parameters over ", spec.ranks,
                " ranks is too large to be counted; try fewer ranks, or --parameters");
  return spec;
}

PlanReport plan_parameters(const PlanOptions& o, const Options& options) {
  const bool variants =
      std::ranges::any_of(o.stages, [](StageKind stage) { return file_of(stage).is_variant(); });
  if (variants || !o.presets.empty() || transport_of(o) != Transport::threads)
    throw UsageError(str("--parameters has the paper's formulas for model states alone: ",
                         variants || !o.presets.empty() ? "--stages takes ddp, zero1, zero2 and "
                                                          "zero3 with it"
                                                        : "leave out --backend"));
  return model_states_report(*o.parameters, o.source.ranks, options, o.stages,
                             o.spec.device_memory);
}

PlanReport plan_model(const PlanOptions& options, const LoadedConfig& loaded) {
  std::optional<Machine> machine;
  if (!options.clock.machine.empty())
    machine = planned_machine(options.clock, options.source.ranks_per_node, options.source.ranks);
  const ModelChoice model = choose_model(options, loaded);
  const GptTrainingSpec spec =
      planned_spec(options, spec_of(options, model, loaded.config), machine);
  require_threads_used(spec.device, options.threads,
                       loaded.config.offload_optimizer != OffloadDevice::none);
  set_compute_threads(options.threads);
  std::vector<StagePlan> plans;
  for (const StageKind stage : options.stages) plans.push_back(plan_stage(spec, stage, 0));
  const auto presets = predict_presets(options.presets, loaded.config, spec);
  PlanReport report =
      plan_report(plans, presets, spec, plan_head(spec, model.name, loaded.config.recompute));
  // Of stages that fit, the machine's clock knows which is the fastest.
  if (!machine || !report.fits) report.text += plan_advice(plans, spec) + (machine ? "\n" : "");
  if (machine)
    add_clock({options.stages, spec, *machine, options.clock, options.any_stage}, report);
  return report;
}

int plan(PlanOptions options) {
  if (options.clock.list) return list_machines(options.json);
  options.any_stage = options.stages.empty() && options.presets.empty();
  if (options.stages.empty()) options.stages = {kStages, kStages + 4};
  options.out = ".";  // of no checkpoint
  complete_checkpoint_flags(options);
  require_groups_used(options.source, options.stages, !options.clock.machine.empty());
  options.source.ranks = options.ranks.value_or(kPlanRanks);
  const LoadedConfig loaded = load_settings(options, options.source.ranks);
  const PlanReport report =
      options.parameters ? plan_parameters(options, loaded.config) : plan_model(options, loaded);
  std::fputs((options.json ? report.json : report.text).c_str(), stdout);
  return report.fits ? kFine : kOutOfMemory;
}

constexpr const char* kPlanFooter =
    R"(Runs one training step of the real model under the real stage on a device that holds no data,
as rank 0 of any number of ranks. So peaks are exact, and nothing needs the memory that it counts.

Examples:
  zerolab plan --model gpt2 --ranks 8
  zerolab plan --model gpt2-xl --ranks 8 --device-memory 24GiB --as cuda
  zerolab plan --model gpt2-xl --ranks 16 --machine a100-80gb --precision bf16
  zerolab plan --parameters 7.5e9 --ranks 64 --precision bf16

Exit codes: 0 fine, 2 usage or configuration, 3 no listed stage fits)"
    "\f"
    R"(
--parameters has the ZeRO paper's formulas for model states alone, for any model. --as changes
workspace only: kernels of each device need a different amount. With --save-every the peaks on the
host include what a save takes there.

More examples:
  zerolab plan --model gpt2-xl --ranks 8 --machine l4 --precision bf16 --advise

Other exit codes: 70 unforeseen, 130 Ctrl-C)";

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  static PlanOptions options;
  Flags flags(app, invocation, "plan",
              "memory and traffic of each stage, without running it; which one fits",
              [] { return plan(options); });
  flags.group("Run");
  add_stages_flag(flags, options.stages, &options.presets);
  flags.add("--ranks", "N", options.ranks, count_within(1, kMostRanks),
            "number of ranks (default 4)");
  flags.add("--as", "WHERE", options.device, read_device,
            "device of the ranks: cpu, cuda or reference (default cpu)\fIt need not be here");
  flags.add("--parameters", "N", options.parameters, count_within(),
            "the paper's formulas for this many parameters, such as 7.5e9, and no model");
  add_clock_flags(flags, options.clock);
  add_shared_flags(flags, options);
  for (const char* flag : {"--model", "--n-layer", "--n-head", "--n-embd", "--block-size",
                           "--vocab-size", "--init-from", "--machine", "--as", "--save-every"})
    flags.excludes("--parameters", flag);
  flags.excludes("--as", "--machine");
  flags.footer(kPlanFooter);
}

}  // namespace zl::cli
