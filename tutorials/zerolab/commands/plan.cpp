// zerolab plan: each stage's bytes and traffic, by formula and dry run.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stages/predict/dry_run.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/plan/clock_section.h"
#include "tutorials/zerolab/plan/closed_plan.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPlanRanks = 4;
constexpr int64_t kMostRanks = 1 << 20;  // nothing runs, so there may be many
constexpr int64_t kDryMicroBatches = 3;  // their peaks repeat
constexpr int kMostShown = 8;            // ranks of a page

using Wish = RunOptions::DeviceWish;

struct PlanOptions : RunOptions {
  std::vector<StageKind> stages;  // empty: the paper's four
  std::vector<const Preset*> presets;
  bool any_stage = false;  // --stages is not given
  std::string page;        // --out
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

// The closed formula counts model states alone, for any model on any device.
void refuse_flags_of_models(const PlanOptions& o) {
  const bool sizes = o.n_layer || o.n_head || o.n_embd || o.block_size || o.vocab_size,
             variants = std::ranges::any_of(
                 o.stages, [](StageKind stage) { return file_of(stage).is_variant(); });
  for (const auto& [given, flag] :
       {std::pair{o.given("--model") || sizes || !o.init_from.empty(),
                  "--model, the size flags and --init-from"},
        {variants || !o.presets.empty(), "variants and systems as shipped"},
        {!o.clock.machine.empty(), "--machine"},
        {o.checkpoint.save_every > 0, "--save-every"},
        {o.device != Wish::automatic, "--as"},
        {transport_of(o) != Transport::threads, "--backend"}})
    if (given)
      throw UsageError(
          str("--parameters has closed formulas for model states alone; leave out ", flag));
}

// The second step of each stage in a dry run, which has no times.
std::vector<recording::RecordedStep> dry_steps(const GptTrainingSpec& spec,
                                               const std::vector<StageKind>& stages) {
  std::vector<recording::RecordedStep> steps;
  for (const StageKind stage : stages) {
    TrainingSpec unlimited = with_stage(spec, stage);
    unlimited.device_memory = unlimited.host_memory = 0;
    steps.push_back({.stage = name(stage), .ranks = spec.ranks, .timed = false, .shown = {}});
    for (int rank = 0; rank < std::min(kMostShown, spec.ranks); ++rank) {
      std::optional<recording::StepRecorder> recorder;
      dry_run(unlimited, rank, kDryMicroBatches,
              [&](Trainer& training) { recorder.emplace(training); });
      steps.back().shown.push_back(recorder->recording());
    }
  }
  return steps;
}

// Where the ranks compute, as the flags say, which must agree. It need not be here.
DeviceKind planned_device(const PlanOptions& options, const std::optional<Machine>& machine) {
  const bool reference = options.device == Wish::reference;
  const std::string gpus = "GPUs", cpus = "CPUs", own = reference ? "the reference kernels" : cpus;
  std::vector<std::pair<const char*, std::string>> said;  // by which flag
  if (options.device != Wish::automatic)
    said.push_back({"--as", options.device == Wish::cuda ? gpus : own});
  if (const Transport transport = transport_of(options); transport != Transport::threads)
    said.push_back({"--backend", transport == Transport::nccl ? gpus : own});
  if (machine)
    said.push_back({"--machine", machine->rank.device == DeviceKind::cuda ? gpus : cpus});
  for (const auto& [flag, where] : said)
    if (where != said[0].second)
      throw UsageError(str(said[0].first, " means ranks on ", said[0].second, ", but ", flag,
                           " ranks on ", where, "; leave one of them out"));
  return !said.empty() && said[0].second == gpus ? DeviceKind::cuda : DeviceKind::cpu;
}

GptTrainingSpec planned_spec(const PlanOptions& options, GptTrainingSpec spec,
                             const std::optional<Machine>& machine) {
  spec.ranks = options.source.ranks;
  spec.device_memory = options.device_memory;
  spec.host_memory = options.host_memory;
  spec.transport = transport_of(options);
  spec.device = planned_device(options, machine);
  spec.reference = options.device == Wish::reference;
  spec.checkpoint = options.checkpoint;
  spec.interrupted = interrupt_requested;
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
  require_input(
      16.0 * 3 * parameters * spec.ranks * double(spec.engine.accumulation) < 9e18,
      "the traffic of ", parameters, " parameters over ", spec.ranks,
      " ranks is too large to be counted; try fewer ranks, or --parameters, which has no limit");
  return spec;
}

// With a rank's part of the node's host memory as its limit, if something is offloaded.
GptTrainingSpec with_host_memory(GptTrainingSpec spec, const Machine& machine) {
  const Options& e = spec.engine;
  const bool offloads = e.offload_optimizer != OffloadDevice::none ||
                        e.offload_param != OffloadDevice::none || e.cpu_checkpointing;
  if (offloads && spec.host_memory == 0)
    spec.host_memory =
        int64_t(machine.host.memory_bytes) / std::min(spec.ranks, machine.ranks_per_node);
  return spec;
}

// Both return whether a stage fits.
bool plan_parameters(const PlanOptions& options, const Config& config, RunReport& report) {
  refuse_flags_of_models(options);
  const ClosedPlan plan = closed_plan(
      {*options.parameters, options.source.ranks, config, options.device_memory}, options.stages);
  report.device = "none: closed formulas";
  report.settings = plan.text;
  report.document = plan.json;
  return plan.fits;
}

bool plan_model(const PlanOptions& options, const LoadedConfig& loaded, RunReport& report) {
  std::optional<Machine> machine;
  if (!options.clock.machine.empty())
    machine = planned_machine(options.clock, options.source.ranks_per_node, options.source.ranks);
  const ModelChoice model = choose_model(options, loaded);
  const GptTrainingSpec spec = planned_spec(options, spec_of(model, loaded.config), machine);
  require_threads_used(spec.device, options.threads,
                       loaded.config.offload_optimizer != OffloadDevice::none);
  set_compute_threads(options.threads);
  const GptTrainingSpec limited = machine ? with_host_memory(spec, *machine) : spec;
  std::vector<StagePlan> plans;
  for (const StageKind stage : options.stages) plans.push_back(plan_stage(limited, stage, 0));
  bool fits = std::ranges::any_of(plans, [](const StagePlan& p) { return !p.out_of_memory; });
  const auto presets = predict_presets(options.presets, loaded.config, spec);
  report.device = str("none: a dry run for ", name(spec.device));
  report.document = plan_json(plans, presets, limited);
  report.settings =
      plan_text(plans, limited, model.name, loaded.config.recompute) + preset_text(presets);
  // Of stages that fit, the machine's clock knows which is the fastest.
  if (!machine || !fits)
    report.settings += plan_advice(plans, limited);
  else
    report.settings.pop_back();  // the clock begins with an empty line too
  if (machine)
    fits = add_clock({options.stages, spec, *machine, options.clock, options.any_stage},
                     report.settings, report.document);
  if (options.page.empty()) return fits;
  report.recordings = dry_steps(spec, options.stages);
  if (const int64_t A = spec.engine.accumulation; A > kDryMicroBatches)
    report.left_out.push_back(
        str("Of the ", A, " micro-batches of a step a dry run makes ", kDryMicroBatches, "."));
  return fits;
}

int plan(PlanOptions options) {
  if (options.clock.list) return list_machines(options.json);
  options.any_stage = options.stages.empty() && options.presets.empty();
  if (options.stages.empty()) options.stages = {kStages, kStages + 4};
  options.page = std::exchange(options.out, ".");  // the latter: of no checkpoint
  complete_checkpoint_flags(options);
  require_groups_used(options.source, options.stages, !options.clock.machine.empty());
  options.source.ranks = options.ranks.value_or(kPlanRanks);
  const LoadedConfig loaded = load_settings(options, options.source.ranks);
  std::optional<RunFolder> folder;
  if (!options.page.empty()) folder.emplace(options.page, RunFolder::For::compare);
  RunReport report{.kind = "plan", .device = "", .settings = ""};
  const bool fits = options.parameters ? plan_parameters(options, loaded.config, report)
                                       : plan_model(options, loaded, report);
  // First, so that the plan is not lost if the page cannot be written.
  std::fputs((options.json ? report.document : report.settings).c_str(), stdout);
  std::fflush(stdout);
  if (folder) {
    write_files(report_files(folder->path(), report_json(report)), Existing::keep);
    if (!options.json)
      std::printf("\nFiles: %s\n", printable_line(folder->file("report.html")).c_str());
  }
  return fits ? kFine : kOutOfMemory;
}

constexpr const char* kPlanFooter =
    R"(Runs one training step of the real model under the real stage on a device that holds no data,
as rank 0 of any number of ranks. So peaks are exact, and nothing needs the memory that it counts.

Examples:
  zerolab plan --model gpt2 --ranks 8
  zerolab plan --model gpt2-xl --ranks 8 --device-memory 24GiB --as cuda
  zerolab plan --model gpt2-xl --ranks 16 --machine a100-80gb --precision bf16 --overlap on
  zerolab plan --parameters 7.5e9 --ranks 64 --precision bf16

Exit codes: 0 fine, 2 usage or configuration, 3 no listed stage fits)"
    "\f"
    R"(
--parameters is the closed formula of model states alone, for any model. --as changes workspace
only: kernels of each device need a different amount. With --save-every the peaks on the host
include what a save takes there. With overlap, prefetch, reuse or reproducible sums, a line per
stage says what they cost in bytes. --out DIR gets report.html, a page that plays one step of each
stage, and its data report.json.

More examples:
  zerolab plan --model gpt2-xl --ranks 8 --machine l4 --precision bf16 --advise
  zerolab plan --model gpt2-xl --machine h100-sxm --sweep ranks=8,64,512,4096 --stages zero1,zero3
  zerolab plan --model gpt2 --ranks 8 --out plans/gpt2

Other exit codes: 70 unforeseen, 74 an output could not be written, 130 Ctrl-C)";

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  static PlanOptions options;
  Flags flags(app, invocation, "plan",
              "memory and traffic of each stage, without running it; which one fits",
              [] { return plan(options); });
  flags.group("Run");
  add_stages_flag(flags, options.stages, &options.presets);
  flags.value("--ranks", "N", "number of ranks (default 4)",
              [](const auto& text) { options.ranks = int(read_count(text, 1, kMostRanks)); });
  flags.add("--as", "WHERE", options.device, read_device,
            "device of the ranks: cpu, cuda or reference (default cpu)\fIt need not be here");
  flags.value("--parameters", "N",
              "closed formula for this many parameters, such as 7.5e9, and no model",
              [](const auto& text) { options.parameters = double(read_count(text, 1)); });
  add_clock_flags(flags, options.clock);
  add_shared_flags(flags, options);
  flags.group("Output");
  flags.name("--out", "DIR",
             "folder for report.html and report.json (default: none)\fIt must not hold a run",
             options.out);
  flags.footer(kPlanFooter);
}

}  // namespace zl::cli
