// zerolab compare: the same seed and data under several stages.

#include "tutorials/zerolab/commands/compare.h"

#include <cstdio>
#include <filesystem>
#include <map>

#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/report/baseline.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/report/step_timeline.h"
#include "tutorials/zerolab/run/preflight.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_trace.h"
#include "tutorials/zerolab/run/stage_meter.h"

namespace zl::cli {
namespace {

constexpr int kCompareRanks = 4;

// "run.json" for zero1: "run-zero1.json"; "": "".
std::string name_for(StageKind stage, const std::string& path) {
  if (path.empty()) return "";
  const std::filesystem::path file(path);
  const std::string name = file.stem().string() + "-" + zl::name(stage) + file.extension().string();
  return (file.parent_path() / name).string();
}

// What is measured of each stage beside the comparison: waiting, the memory at the peak, traces
// if they are asked for, and the recorded step of the page. All file names are checked at once,
// whichever stages will run.
class StageRecorders {
 public:
  StageRecorders(const CompareOptions& options, int ranks, bool writes, RunPage& page)
      : page_(page) {
    for (const StageKind stage : all_stages()) {
      meters_.try_emplace(stage, ranks);
      timelines_.try_emplace(stage, ranks);
      const std::string trace = name_for(stage, options.trace);
      if (!trace.empty()) traces_.try_emplace(stage, trace, options.out, ranks, writes);
    }
  }
  TrainingCallbacks callbacks() {
    return {.at_start =
                [this](Trainer& training) {
                  const StageKind stage = training.spec().engine.stage;
                  if (training.comm().rank() == 0) running_ = stage;
                  meters_.at(stage).at_start(training);
                  timelines_.at(stage).at_start(training);
                  if (!traces_.empty()) traces_.at(stage).at_start(training);
                  page_.at_start(training);
                },
            .after_step = [this](Trainer& training) { page_.after_step(training); },
            .on_step = [this](const StepRecord& record) { page_.on_step(running_, record); },
            .at_end =
                [this](Trainer& training) {
                  const StageKind stage = training.spec().engine.stage;
                  timelines_.at(stage).at_end(training);
                  meters_.at(stage).at_end(training);
                  if (!traces_.empty()) traces_.at(stage).at_end(training);
                }};
  }
  // Adds what was measured to the stages that ran. Returns their memory at the peak.
  std::map<StageKind, MemoryByUse> results(Comparison& comparison) const {
    std::map<StageKind, MemoryByUse> at_peak;
    for (StageOutcome& s : comparison.stages) {
      if (s.out_of_memory) continue;
      s.waiting = meters_.at(s.stage).waiting(s.steps);
      at_peak[s.stage] = meters_.at(s.stage).at_peak();
    }
    return at_peak;
  }
  // What the ranks did in the last step of each stage; "" without lanes.
  std::string timelines(const Comparison& comparison) const {
    std::string text;
    for (const StageOutcome& s : comparison.stages)
      if (!s.out_of_memory) text += timelines_.at(s.stage).text(name(s.stage));
    if (text.empty()) return "";
    return text + "  #: computes   =: computes while a call is in flight   .: waits for a call\n\n";
  }
  std::string summary(const Comparison& comparison) const {
    std::string text;
    for (const StageOutcome& s : comparison.stages)
      if (!traces_.empty() && !s.out_of_memory) text += traces_.at(s.stage).summary();
    return text;
  }
  std::string problem() const {
    for (const auto& [stage, trace] : traces_)
      if (!trace.problem().empty()) return trace.problem();
    return "";
  }

 private:
  std::map<StageKind, StageMeter> meters_;
  std::map<StageKind, StepTimeline> timelines_;
  std::map<StageKind, RunTrace> traces_;
  RunPage& page_;
  StageKind running_;  // on rank 0
};

}  // namespace

Comparison run_stages(const CompareOptions& options, const RunSetup& setup,
                      const TrainingCallbacks& callbacks) {
  const Terminal terminal = standard_error(options.color);
  std::optional<Progress> progress;
  std::optional<StageKind> running;
  TrainingCallbacks all = callbacks;
  all.on_step = [&](const StepRecord& record) {
    if (callbacks.on_step) callbacks.on_step(record);
    if (progress) progress->step(record);
  };
  all.at_start = [&](Trainer& trainer) {  // before the first step, so that its ETA is right
    if (callbacks.at_start) callbacks.at_start(trainer);
    if (trainer.comm().rank() != 0) return;
    running = trainer.spec().engine.stage;
    if (options.quiet) return;
    // This first ends the line of the stage before.
    progress.emplace(terminal, setup.spec.steps, name(*running));
  };
  try {
    return compare_stages(setup.spec, options.stages, all);
  } catch (const Interrupted&) {
    progress.reset();
    throw InterruptedRun(str(interrupted_by(interrupt_signal()),
                             running ? str(" while ", name(*running), " ran") : ""));
  }
}

namespace {

// Prints the report first, so that it is not lost if a file cannot be written.
void print_and_write(const CompareOptions& options, const ComparisonReport& report,
                     const RunFolder* folder, const StageRecorders& recorders, RunPage& page) {
  const std::string json = comparison_json(report);
  std::fputs(
      (options.json ? json : comparison_text(report, standard_output(options.color))).c_str(),
      stdout);
  std::fflush(stdout);
  if (folder) {
    page.write(json, {{folder->file("compare.json"), json}});
    if (!options.json)
      std::printf(
          "%s\n",
          printable(str("Files: ", page.file(), ", ", folder->file("compare.json"))).c_str());
  }
  if (!recorders.problem().empty()) throw OutputError(recorders.problem());
}

// The comparison; if it fails, the page shows how far it came.
Comparison run_with_page(const CompareOptions& options, const RunSetup& setup,
                         StageRecorders& recorders, RunPage& page) {
  try {
    return run_stages(options, setup, recorders.callbacks());
  } catch (const InterruptedRun& e) {
    const bool written = page.write_failure(e.text, RunEnd::interrupted);
    throw InterruptedRun(e.text + (written ? "; " + page.file() + " shows the steps so far"
                                           : "; nothing was written"));
  } catch (const std::exception& e) {
    const bool signal = is_interrupt(e, interrupt_signal());
    if (page.write_failure(e.what(), signal ? RunEnd::interrupted : RunEnd::failed))
      std::fprintf(stderr, "note: %s shows the steps so far\n", printable(page.file()).c_str());
    throw;
  }
}

int compare(CompareOptions options, bool& first) {
  if (options.stages.empty())
    for (const Preset* preset : options.presets)
      if (std::ranges::find(options.stages, preset->parent) == options.stages.end())
        options.stages.push_back(preset->parent);
  if (options.stages.empty()) options.stages = {kStages, kStages + 4};
  require_groups_used(options.source, options.stages);
  require_input(options.several_ranks.empty() || options.presets.empty(),
                "--as compares systems on one number of ranks; give --ranks one number");
  if (!options.several_ranks.empty()) return compare_ranks(options);
  const std::optional<LaunchedRank> process = launched_rank(options);
  first = is_first(process);  // else the process of rank 0 writes and prints
  if (!first) hush(options);
  const RunSetup setup = set_up_run(options, kCompareRanks, process);
  std::optional<Baseline> baseline;
  if (!options.baseline.empty()) {
    baseline.emplace(options.baseline);
    baseline->require_same_settings(comparison_settings(setup, options.stages));
  }
  GptTrainingSpec machine = setup.spec;
  machine.host_memory = 0;  // a stage beyond that limit is reported, not refused
  require_memory(machine, setup, options.stages);
  const std::vector<PresetPlan> presets =
      predict_presets(options.presets, setup.config, setup.spec);
  std::optional<RunFolder> folder;
  if (!options.out.empty() && first) folder.emplace(options.out, RunFolder::For::compare);
  const std::string settings = describe(setup, options.stages);
  RunPage page(setup, "compare", settings, {.folder = options.out, .writes = first});
  StageRecorders recorders(options, setup.spec.ranks, first, page);
  if (!options.quiet) note_reports_of_train(setup.config, "compare");
  if (!options.quiet) std::fputs(settings.c_str(), stderr);

  Comparison comparison = run_with_page(options, setup, recorders, page);
  if (!first) return kFine;
  if (!options.quiet) std::fputs(recorders.summary(comparison).c_str(), stderr);
  ComparisonReport report{setup,
                          comparison,
                          recorders.results(comparison),
                          options.baseline,
                          "",
                          recorders.timelines(comparison),
                          presets};
  if (baseline) report.baseline_difference = baseline->first_difference(comparison_json(report));
  print_and_write(options, report, folder ? &*folder : nullptr, recorders, page);
  if (!comparison.any_fits()) return kOutOfMemory;
  return comparison.ok() && report.baseline_difference.empty() ? kFine : kFailed;
}

constexpr const char* kCompareFooter =
    R"(ddp always runs. The bits of losses, gradient norms and final weights are compared: with one
micro-batch per step (A = gradient_accumulation_steps = 1) all four stages promise ddp's; with
several zero1 promises ddp's and zero3 zero2's. Bytes and traffic are compared with formulas.

Examples:
  zerolab compare
  zerolab compare --model tiny --ranks 3 --steps 20 --stages zero1,zero3 --out runs/a
  zerolab compare --ranks 3 --precision bf16 --set gradient_accumulation_steps=4
  zerolab compare --device-memory 12MiB

Exit codes: 0 all equal and as predicted, 1 not so, 2 usage, 3 no stage fits, 4 communication)"
    "\f"
    R"(
The two pairs differ by rounding because they sum in different orders. With several micro-batches
zero3 needs zero2, and zero2 zero3, which runs as well, and the gradient of each stage's first step
must be within rounding of ddp's. zero3_hpz promises zero3's bits; hsdp adds in another order, and
zero3_qwz and zero3_qgz round to 8 and 4 bits: the table says how far they are from ddp's, as a part
of the bound that is checked.
Activations, workspace and the total are compared with a dry run. Ψ is the number of parameters, N
the number of ranks.
--as puts systems as they are shipped beside the paper's stages. They are not run: closed formulas
say what they keep and send, and the text below them says what makes the difference.
With overlap_comm, prefetch or a simulated link, the table says how much of the communication is
hidden behind computation, and how much is exposed.
--out DIR gets report.html, a page that plays one step of each stage, its data report.json, and
compare.json; 'zerolab report DIR' makes the page again.
--baseline FILE names the compare.json of an earlier run with the same settings: losses, norms,
hashes of the weights, memory and traffic must be equal.
With --reproducible the four stages promise the same bits whatever N and A are, as long as N × A is
the same. --ranks 1,2,3,4,6 then runs the same micro-batches on each number of ranks, and prints one
hash of all losses, norms and weights if they agree.

More examples:
  zerolab compare --set gradient_accumulation_steps=4 --baseline runs/a/compare.json
  zerolab compare --as paper,deepspeed-1,torch-ddp --ranks 2
  zerolab compare --ranks 2 --link-bandwidth 100MB/s --set zero_optimization.overlap_comm=true
  zerolab compare --reproducible --ranks 1,2,3,4,6 --model tiny --steps 10
  zerolab compare --device cuda --ranks 3 --precision bf16

Exit code 1 also means that no loss scale is small enough. Others: 70 unforeseen, 74 an output could
not be written, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP)";

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  static CompareOptions options;
  Flags flags(app, invocation, "compare",
              "the same seed and data under several stages: equality, memory, traffic", [] {
                bool first = true;
                try {
                  return compare(options, first);
                } catch (const Interrupted&) {
                  if (first) throw;
                  return 128 + interrupt_signal();
                }
              });
  flags.group("Run");
  add_stages_flag(flags, options.stages);
  flags.add("--as", "LIST", options.presets, read_presets,
            "systems as they are shipped, predicted beside the stages: deepspeed-1,\n"
            "deepspeed-2, deepspeed-3, fsdp2, fsdp2-no-reshard, torch-ddp");
  add_shared_flags(flags, options);
  flags.group("Output");
  flags.name("--out", "DIR",
             "folder for report.html, report.json and compare.json (default: none)\f"
             "It must not hold a run",
             options.out);
  flags.name("--baseline", "FILE", "compare.json of an earlier run that the results must equal",
             options.baseline);
  flags.group("Output", true);
  flags.name("--trace", "FILE",
             "new files for timelines, for ui.perfetto.dev: FILE's name with -ddp, -zero1 …\n"
             "before its ending (default: none)",
             options.trace);
  flags.footer(kCompareFooter);
}

}  // namespace zl::cli
