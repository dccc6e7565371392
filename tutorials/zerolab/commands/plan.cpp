// zerolab plan: each stage's bytes and traffic, by formula and dry run.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stages/predict/dry_run.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/plan/clock_section.h"
#include "tutorials/zerolab/plan/closed_plan.h"
#include "tutorials/zerolab/plan/plan_sections.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/run_json.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/run/run_checkpoints.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

constexpr int kPlanRanks = 4;
constexpr int64_t kMostRanks = 1 << 20;  // nothing runs, so there may be many
constexpr int64_t kDryMicroBatches = 3;  // their peaks repeat
constexpr int64_t kLongDryRun = 2000;    // layers; shorter ones take no time

using Wish = RunOptions::DeviceWish;

struct PlanOptions : RunOptions {
  std::vector<StageKind> stages;  // empty: the paper's four
  std::vector<const Preset*> presets;
  std::optional<double> parameters;
  ClockFlags clock;
};

Transport transport_of(const PlanOptions& options) {
  using Wanted = RunOptions::BackendWish;
  return options.backend == Wanted::nccl  ? Transport::nccl
         : options.backend == Wanted::mpi ? Transport::mpi
                                          : Transport::threads;
}

// The closed formula counts model states alone, for any model on any device.
void refuse_flags_of_models(const PlanOptions& options) {
  const bool sizes = options.given("--model") || options.n_layer || options.n_head ||
                     options.n_embd || options.block_size || options.vocab_size ||
                     !options.init_from.empty();
  if (sizes)
    throw UsageError(
        "--parameters is a closed formula for any model; leave out --model, the size flags and "
        "--init-from");
  for (const StageKind stage : options.stages)
    if (file_of(stage).is_variant())
      throw UsageError(str("--parameters has the paper's formulas, and none for ", name(stage),
                           "; leave it out of --stages, or give --model"));
  if (!options.clock.machine.empty())
    throw UsageError("--parameters has no step that a clock could read; leave out --machine");
  if (options.checkpoint.save_every)
    throw UsageError(
        "--parameters has no step in which a checkpoint is saved; leave out --save-every");
  if (options.device != Wish::automatic || transport_of(options) != Transport::threads)
    throw UsageError(
        str("--parameters counts model states alone, which do not depend on it; leave "
            "out ",
            options.device != Wish::automatic ? "--as" : "--backend"));
  if (!options.presets.empty())
    throw UsageError(str("--parameters has the paper's formulas, not those of ",
                         options.presets[0]->name, "; name a model instead, with --model"));
}

// Prints first, so that the plan is not lost if the page cannot be written.
void print_and_write(const PlanOptions& options, const RunReport& report, const RunFolder* folder) {
  std::fputs((options.json ? report.document : report.settings).c_str(), stdout);
  std::fflush(stdout);
  if (!folder) return;
  write_files(report_files(folder->path(), report_json(report)), Existing::keep);
  if (!options.json)
    std::printf("\n%s\n", printable("Files: " + folder->file("report.html")).c_str());
}

int plan_parameters(const PlanOptions& options, const Config& config, int ranks,
                    const std::string& out) {
  refuse_flags_of_models(options);
  const ClosedPlan plan{.parameters = *options.parameters,
                        .ranks = ranks,
                        .options = config,
                        .device_memory = options.device_memory};
  const std::string json = closed_json(plan, options.stages),
                    text = closed_text(plan, options.stages);
  std::optional<RunFolder> folder;
  if (!out.empty()) folder.emplace(out, RunFolder::For::compare);
  print_and_write(
      options,
      {.kind = "plan", .device = "none: closed formulas", .settings = text, .document = json},
      folder ? &*folder : nullptr);
  return plan.any_fits(options.stages) ? kFine : kOutOfMemory;
}

// The second step of each stage in a dry run, which has no times.
std::vector<recording::RecordedStep> dry_steps(const GptTrainingSpec& spec,
                                               const std::vector<StageKind>& stages) {
  constexpr int most = 8;  // ranks
  std::vector<recording::RecordedStep> steps;
  for (const StageKind stage : stages) {
    TrainingSpec unlimited = with_stage(spec, stage);
    unlimited.device_memory = unlimited.host_memory = 0;
    steps.push_back({.stage = name(stage), .ranks = spec.ranks, .timed = false, .shown = {}});
    for (int rank = 0; rank < std::min(most, spec.ranks); ++rank) {
      std::optional<recording::StepRecorder> recorder;
      dry_run(unlimited, rank, kDryMicroBatches,
              [&](Trainer& training) { recorder.emplace(training); });
      steps.back().shown.push_back(recorder->recording());
    }
  }
  return steps;
}

void write_file(const std::string& path, const std::string& text, bool force) {
  OutputFile file(path, "", force);
  file.write_text(text);
  file.commit();
}

std::vector<StagePlan> plan_stages(const PlanOptions& options, const GptTrainingSpec& spec) {
  std::vector<StagePlan> plans;
  Progress progress(std::ssize(options.stages), options.clock.quiet);
  for (const StageKind stage : options.stages) {
    progress.item(str("memory and traffic of ", name(stage)));
    plans.push_back(plan_stage(spec, stage, 0));
  }
  progress.clear();
  return plans;
}

// What --machine adds to the plan. Returns whether a stage fits.
bool add_clock(const PlanOptions& options, const GptTrainingSpec& spec, const Machine& machine,
               std::string& text, std::string& json) {
  const ClockFlags& flags = options.clock;
  const auto clocks = clock_stages(options.stages, spec, machine, flags);
  text += clock_text(clocks, spec, machine);
  add_clock_json(json, clocks, spec, machine);
  std::vector<PlanSection> sections;
  if (flags.advise)
    sections.push_back(advice_section(flags.advised.empty() ? options.stages : flags.advised, spec,
                                      machine, flags));
  std::string csv;
  if (!flags.sweep_ranks.empty())
    sections.push_back(sweep_section(options.stages, spec, machine, flags, csv));
  add_sections(sections, text, json);
  if (!flags.csv.empty()) write_file(flags.csv, csv, flags.force);
  if (!flags.trace.empty()) write_file(flags.trace, clock_trace(clocks, machine), flags.force);
  return any_fits(clocks);
}

// What the ranks compute on, which need not be here. Throws UsageError for a contradiction.
DeviceKind planned_device(const PlanOptions& options) {
  const Transport transport = transport_of(options);
  const bool reference = options.device == Wish::reference;
  if (transport == Transport::mpi && options.device == Wish::cuda)
    throw UsageError(
        "--backend mpi communicates the memory of CPUs, so --as cuda contradicts it; leave one of "
        "them out");
  if (transport == Transport::nccl && (reference || options.device == Wish::cpu))
    throw UsageError(str("--backend nccl communicates GPU memory, so --as ",
                         reference ? "reference" : "cpu",
                         " contradicts it; leave one of them out"));
  return options.device == Wish::cuda || transport == Transport::nccl ? DeviceKind::cuda
                                                                      : DeviceKind::cpu;
}

GptTrainingSpec planned_spec(const PlanOptions& options, GptTrainingSpec spec, int ranks) {
  spec.ranks = ranks;
  spec.device_memory = options.device_memory;
  spec.host_memory = options.host_memory;
  spec.transport = transport_of(options);
  spec.device = planned_device(options);
  spec.reference = options.device == Wish::reference;
  spec.checkpoint = checkpoint_options(options);
  spec.interrupted = interrupt_requested;
  return spec;
}

// The machine of --machine, if it is given. Throws UsageError if another flag contradicts it.
std::optional<Machine> planned_machine(const PlanOptions& options, GptTrainingSpec& spec) {
  const ClockFlags& flags = options.clock;
  if (flags.machine.empty()) return std::nullopt;
  const Machine machine = take_machine(flags, options.source, spec);
  const char* has = spec.device == DeviceKind::cpu ? "CPUs" : "GPUs";
  const bool as = options.device != Wish::automatic &&
                  options.device != (spec.device == DeviceKind::cpu ? Wish::cpu : Wish::cuda);
  const Transport other = spec.device == DeviceKind::cpu ? Transport::nccl : Transport::mpi;
  if (as || spec.transport == other)
    throw UsageError(str("the ranks of ", machine.name, " are ", has, ", which contradicts ",
                         as ? "--as" : "--backend", "; leave it out"));
  for (const std::string& file : {flags.csv, flags.trace})
    if (!file.empty()) OutputFile(file, "", flags.force);  // before the plan is made
  return machine;
}

// Traffic is counted in bytes times ranks, in 64 bits.
void require_countable(const GptTrainingSpec& spec) {
  const double parameters = double(spec.model.parameters());
  require_input(
      16.0 * 3 * parameters * spec.ranks * double(spec.engine.accumulation) < 9e18,
      "the traffic of ", parameters, " parameters over ", spec.ranks,
      " ranks is too large to be counted; try fewer ranks, or --parameters, which has no limit");
}

int plan(PlanOptions options) {
  require_machine(options.clock);
  if (options.clock.list) {
    std::fputs(machine_list(options.json).c_str(), stdout);
    return kFine;
  }
  const bool listed = !options.stages.empty() || !options.presets.empty();
  if (options.stages.empty()) options.stages = {kStages, kStages + 4};
  const std::string out = std::exchange(options.out, ".");  // the latter: of no checkpoint
  complete_checkpoint_flags(options);
  require_groups_used(options.source, options.stages, !options.clock.machine.empty());
  const int ranks = options.ranks.value_or(kPlanRanks);
  const LoadedConfig loaded = load_settings(options, ranks);
  if (!options.quiet) note_reports_of_train(loaded.config, "plan");
  if (options.parameters) return plan_parameters(options, loaded.config, ranks, out);
  const ModelChoice model = choose_model(options, configured_model(loaded));
  GptTrainingSpec spec = planned_spec(options, spec_of(model, loaded.config), ranks);
  const std::optional<Machine> machine = planned_machine(options, spec);
  require_threads_used(spec.device, options.threads,
                       loaded.config.offload_optimizer != OffloadDevice::none);
  set_compute_threads(options.threads);
  require_countable(spec);
  std::optional<RunFolder> folder;
  if (!out.empty()) folder.emplace(out, RunFolder::For::compare);
  GptTrainingSpec limited = spec;
  if (machine && spec.host_memory == 0) limited.host_memory = host_memory_of_rank(spec, *machine);
  ClockFlags& clock = options.clock;
  clock.quiet = options.quiet || spec.model.layers < kLongDryRun;
  if (machine && !listed) clock.advised = advised_stages(spec, *machine);
  const std::vector<StagePlan> plans = plan_stages(options, limited);
  bool fits = std::ranges::any_of(plans, [](const StagePlan& p) { return !p.out_of_memory; });
  const auto presets = predict_presets(options.presets, loaded.config, spec);
  std::string json = plan_json(plans, presets, limited),
              text = plan_text(plans, limited, model.name) + preset_text(presets);
  // Of stages that fit, the machine's clock knows which is the fastest.
  if (!machine || !fits)
    text += plan_advice(plans, limited);
  else
    text.pop_back();  // the clock begins with an empty line too
  if (machine) fits = add_clock(options, spec, *machine, text, json);
  RunReport report{.kind = "plan",
                   .device = str("none: a dry run for ", name(spec.device)),
                   .settings = text,
                   .document = json};
  if (folder) {
    report.recordings = dry_steps(spec, options.stages);
    if (const int64_t A = spec.engine.accumulation; A > kDryMicroBatches)
      report.left_out.push_back(
          str("Of the ", A, " micro-batches of a step a dry run makes ", kDryMicroBatches, "."));
  }
  print_and_write(options, report, folder ? &*folder : nullptr);
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
only: a CPU packs matrices into buffers, cuBLAS has 32 MiB, some kernels keep partial sums of other
sizes, and the reference keeps full matrices.
With --save-every the peaks on the host include what a save takes there.
With overlap, prefetch, reuse or reproducible sums, a line per stage says what they cost in bytes.
--out DIR gets report.html, a page that plays one step of each stage, and its data report.json.
Sizes: 64MiB, 80GB; counts: 7.5e9, 124M.

More examples:
  zerolab plan --model gpt2 --set zero_optimization.overlap_comm=true
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
