// zerolab compare: the same seed and data under several stages.

#include <cstdio>
#include <filesystem>

#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

constexpr int kCompareRanks = 4;

struct CompareOptions : RunOptions {
  std::string baseline;
  std::vector<StageKind> stages;  // of --stages; then what runs
};

// Prints the results and writes the files. Returns the exit code.
int finish(const CompareOptions& options, const ComparisonReport& report, bool any_fits,
           RunPage& page) {
  const std::string file = (std::filesystem::path(options.out) / "compare.json").string();
  page.end(options.json ? report.json : report.text, report.json, {{file, report.json}});
  if (!options.out.empty() && !options.json)
    std::printf("%s\n", printable(str("Files: ", page.file(), ", ", file)).c_str());
  return !any_fits ? kOutOfMemory : report.ok ? kFine : kFailed;
}

int compare(CompareOptions options) {
  if (options.stages.empty()) options.stages = {kStages, kStages + 4};
  require_groups_used(options.source, options.stages);
  const std::optional<LaunchedRank> process = launched_rank(options);
  const bool first = is_first(process);
  const RunSetup setup = set_up_run(options, kCompareRanks, process);
  std::optional<Baseline> baseline;
  if (!options.baseline.empty())
    baseline.emplace(options.baseline, comparison_settings(setup, options.stages));
  require_memory(setup.spec, setup, options.stages);
  const auto presets = predict_presets({}, setup.config, setup.spec);
  std::optional<RunFolder> folder;
  if (!options.out.empty() && first) folder.emplace(options.out, RunFolder::For::compare);
  const std::string settings = describe(setup, options.stages);
  RunPage page(setup, "compare", settings, {.folder = options.out, .writes = first});
  if (!options.quiet) std::fputs(settings.c_str(), stderr);

  Comparison comparison;
  std::optional<StageKind> running;
  std::optional<Progress> progress;
  const TrainingCallbacks callbacks{
      .at_start =
          [&](Trainer& training) {
            page.at_start(training);
            if (training.comm().rank() > 0) return;
            running = training.spec().engine.stage;
            if (!options.quiet) progress.emplace(setup.spec.steps, false, name(*running));
          },
      .after_step = [&](Trainer& training) { page.after_step(training); },
      .on_step =
          [&](const StepRecord& record) {
            page.on_step(*running, record);
            if (progress) progress->step(record);
          }};
  try {
    comparison = compare_stages(setup.spec, options.stages, callbacks);
    progress.reset();
  } catch (const std::exception& e) {
    progress.reset();
    return page.end_early(e, running ? str(" while ", name(*running), " ran") : "", "");
  }
  if (!first) return kFine;
  const Baseline* compared = baseline ? &*baseline : nullptr;
  return finish(options, comparison_report(setup, comparison, presets, compared),
                comparison.any_fits(), page);
}

constexpr const char* kCompareFooter =
    R"(ddp always runs. The bits of losses, gradient norms and final weights are compared: with one
micro-batch per step (A = gradient_accumulation_steps = 1) all four stages must equal ddp; with
several, zero1 must equal ddp and zero3 zero2, bit for bit. Bytes and traffic are compared with
formulas.

Examples:
  zerolab compare
  zerolab compare --model tiny --ranks 3 --steps 20 --stages zero1,zero3 --out runs/a
  zerolab compare --ranks 3 --precision bf16 --set gradient_accumulation_steps=4
  zerolab compare --device-memory 20MiB

Exit codes: 0 all equal and as predicted, 1 not so, 2 usage, 3 no stage fits, 4 communication)"
    "\f"
    R"(
The two pairs differ by rounding because they sum in different orders; the gradient of each stage's
first step must be within rounding of ddp's. Activations, workspace and the total are compared with
a dry run. With overlap_comm, prefetch or a simulated link, the table says how much communication is
hidden behind computation. See tutorials/reference/variants.md.

More examples:
  zerolab compare --set gradient_accumulation_steps=4 --baseline runs/a/compare.json
  zerolab compare --ranks 2 --link-bandwidth 100MB/s --set zero_optimization.overlap_comm=true

Other exit codes: 70 unforeseen, 74 an output could not be written, 130 Ctrl-C, 143 SIGTERM)";

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  static CompareOptions options;
  Flags flags(app, invocation, "compare",
              "the same seed and data under several stages: equality, memory, traffic",
              [] { return compare(options); });
  flags.group("Run");
  add_stages_flag(flags, options.stages);
  add_shared_flags(flags, options);
  flags.group("Output");
  flags.name("--baseline", "FILE", "compare.json of an earlier run that the results must equal",
             options.baseline);
  flags.footer(kCompareFooter);
}

}  // namespace zl::cli
