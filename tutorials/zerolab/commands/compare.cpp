// zerolab compare: the same seed and data under several stages; and the same micro-batches on
// several numbers of ranks.

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tensor/random.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/commands/run_end.h"
#include "tutorials/zerolab/report/baseline.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/preflight.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCompareRanks = 4;
constexpr int64_t kMostMicroBatches = 10'000;  // of a step, of all ranks

struct CompareOptions : RunOptions {
  std::string baseline;
  std::vector<StageKind> stages;       // of --stages; then what runs
  std::vector<const Preset*> presets;  // of --as
};

// compare_stages() with progress on stderr.
Comparison run_stages(const CompareOptions& options, const RunSetup& setup,
                      TrainingCallbacks callbacks) {
  std::optional<Progress> progress;
  callbacks.on_step = [&, then = callbacks.on_step](const StepRecord& record) {
    if (then) then(record);
    if (progress) progress->step(record);
  };
  callbacks.at_start = [&, then = callbacks.at_start](Trainer& training) {
    if (then) then(training);
    if (training.comm().rank() == 0 && !options.quiet)  // this first ends the line before
      progress.emplace(setup.spec.steps, name(training.spec().engine.stage));
  };
  return compare_stages(setup.spec, options.stages, callbacks);
}

// Prints the results and writes the files. Returns the exit code.
int finish(const CompareOptions& options, ComparisonReport& report,
           const std::optional<Baseline>& baseline, RunPage& page) {
  if (baseline) report.baseline_difference = baseline->first_difference(comparison_json(report));
  const std::string json = comparison_json(report),
                    file = (std::filesystem::path(options.out) / "compare.json").string();
  end_run(options.json ? json : comparison_text(report), page, json, {{file, json}}, {});
  if (!options.out.empty() && !options.json)
    std::printf("%s\n", printable(str("Files: ", page.file(), ", ", file)).c_str());
  const Comparison& comparison = report.comparison;
  if (!comparison.any_fits()) return kOutOfMemory;
  return comparison.ok() && report.baseline_difference.empty() ? kFine : kFailed;
}

// ---- Several numbers of ranks ------------------------------------------------------------------

// What is printed of all numbers of ranks.
struct Outcomes {
  Json runs = Json::array();
  TextTable table;
  std::set<std::string> hashes;
  std::string failed;  // sentences about failed checks
  bool ok = true;      // of each comparison in which a stage fits
};

// Of the bits of all losses, gradient norms and final weights.
std::string hash_of(const StageOutcome& s) {
  std::string bytes;
  const auto add = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(s.weights_hash);
  for (const StepRecord& step : s.steps) add(step.loss), add(step.grad_norm);
  return hexadecimal(fnv1a(bytes));
}

void add(Outcomes& all, const GptTrainingSpec& spec, const Comparison& comparison) {
  const bool begins = all.runs.empty();
  Json run{{"ranks", spec.ranks}, {"gradient_accumulation_steps", spec.engine.accumulation}};
  std::vector<std::string> heading{"ranks × micro-batches"},
      cells{str(spec.ranks, " × ", spec.engine.accumulation)};
  if (const std::string text = nonfinite_text(comparison); begins && !text.empty())
    all.failed += "CHECK FAILED: " + text + "\n";
  for (const StageOutcome& s : comparison.stages) {
    const bool fits = !s.out_of_memory, exact = fits && s.predictions_exact();
    const std::string hash = fits ? hash_of(s) : "does not fit";
    if (fits) all.hashes.insert(hash);
    if (fits && !exact)
      all.failed +=
          str("CHECK FAILED: ", name(s.stage), " on ", plural(spec.ranks, "rank"),
              " differs from its prediction; compare it with --ranks ", spec.ranks, ".\n");
    heading.push_back(name(s.stage));
    cells.push_back(hash);
    run["stages"].push_back({{"stage", name(s.stage)},
                             {"hash", fits ? Json(hash) : Json()},
                             {"predictions_exact", exact}});
  }
  if (begins) all.table.row(heading), all.table.line();
  all.table.row(cells);
  all.runs.push_back(run);
  all.ok &= comparison.ok() || !comparison.any_fits();
}

std::string verdict(const Outcomes& all) {
  if (all.hashes.empty())
    return "No stage fits its memory. Try a smaller model or a larger limit.\n";
  const std::string equality =
      all.hashes.size() > 1
          ? str("CHECK FAILED: there are ", all.hashes.size(),
                " hashes, so the bits depend on the stage or on the number of ranks.\n")
      : all.failed.empty()
          ? str("One hash: ", *all.hashes.begin(),
                ". All losses, gradient norms and weights have the same bits in every stage that "
                "fits and for every number of ranks.\n")
          : "";
  return equality + all.failed;
}

// One run for each number of ranks, with N * A micro-batches in all of them: the least that all
// numbers of ranks, with the micro-batches that the settings give each of them, divide.
std::vector<RunSetup> set_up_runs(CompareOptions options) {
  std::vector<RunSetup> setups;
  int64_t all = 1;
  for (const int ranks : options.several_ranks) {
    options.ranks = ranks;
    setups.push_back(set_up_run(options, ranks));
    options.quiet = true;  // the same notes once
    const int64_t first = setups[0].config.micro_batch, B = setups.back().config.micro_batch;
    require_input(B == first, "the same micro-batches on every number of ranks need one size: it ",
                  "is ", first, " on ", plural(setups[0].spec.ranks, "rank"), " and ", B, " on ",
                  ranks, "; set train_micro_batch_size_per_gpu, not train_batch_size");
    all = std::lcm(all, ranks * setups.back().spec.engine.accumulation);
    require_input(all <= kMostMicroBatches, "these numbers of ranks need ", all,
                  " micro-batches per step, the least that all of them divide; at most ",
                  kMostMicroBatches, " are run. Leave one of them out");
  }
  require_input(setups[0].spec.engine.reproducible,
                "several numbers of ranks have the same bits in reproducible mode only; add "
                "--reproducible");
  for (RunSetup& setup : setups)
    setup.config.accumulation = setup.spec.engine.accumulation = all / setup.spec.ranks;
  return setups;
}

// Prints one row per number of ranks, with a hash of each stage's losses, norms and weights.
int compare_ranks(CompareOptions options) {
  require_input(!launched_rank(options),
                "--ranks with several numbers starts its ranks itself; run it without a launcher");
  for (const auto& [flag, value] :
       {std::pair{"--out", &options.out}, {"--baseline", &options.baseline}})
    require_input(value->empty(), flag,
                  " takes the results of one number of ranks; give --ranks one number, or leave ",
                  flag, " out");
  const std::vector<RunSetup> setups = set_up_runs(options);
  const GptTrainingSpec& first = setups[0].spec;
  Outcomes all;
  for (const RunSetup& setup : setups) {
    require_memory(setup.spec, setup, options.stages);
    const std::string text =
        all.runs.empty() ? describe(setup, options.stages)
                         : str("the same micro-batches on ", plural(setup.spec.ranks, "rank"), ", ",
                               setup.spec.engine.accumulation, " for each\n");
    if (!options.quiet) std::fputs(text.c_str(), stderr);
    try {
      add(all, setup.spec, run_stages(options, setup, {}));
    } catch (const Interrupted&) {
      throw InterruptedRun(str(interrupted_by(interrupt_signal()), " on ",
                               plural(setup.spec.ranks, "rank"), "; nothing was kept"));
    }
  }
  const bool one = all.hashes.size() == 1;
  const Json document{{"schema", 1},
                      {"version", kVersion},
                      {"model", setups[0].model.name},
                      {"steps", first.steps},
                      {"micro_batches_per_step", first.ranks * first.engine.accumulation},
                      {"runs", all.runs},
                      {"hash", one ? Json(*all.hashes.begin()) : Json(nullptr)}};
  std::fputs(printable(options.json ? json_text(document) : all.table.text() + "\n" + verdict(all))
                 .c_str(),
             stdout);
  return all.hashes.empty() ? kOutOfMemory : one && all.ok ? kFine : kFailed;
}

int compare(CompareOptions options) {
  if (options.stages.empty())
    for (const Preset* preset : options.presets)
      if (std::ranges::count(options.stages, preset->parent) == 0)
        options.stages.push_back(preset->parent);
  if (options.stages.empty()) options.stages = {kStages, kStages + 4};
  require_groups_used(options.source, options.stages);
  require_input(options.several_ranks.empty() || options.presets.empty(),
                "--as compares systems on one number of ranks; give --ranks one number");
  if (!options.several_ranks.empty()) return compare_ranks(options);
  const std::optional<LaunchedRank> process = launched_rank(options);
  const bool first = is_first(process);
  const RunSetup setup = set_up_run(options, kCompareRanks, process);
  std::optional<Baseline> baseline;
  if (!options.baseline.empty()) {
    baseline.emplace(options.baseline);
    baseline->require_same_settings(comparison_settings(setup, options.stages));
  }
  require_memory(setup.spec, setup, options.stages);
  const auto presets = predict_presets(options.presets, setup.config, setup.spec);
  std::optional<RunFolder> folder;
  if (!options.out.empty() && first) folder.emplace(options.out, RunFolder::For::compare);
  const std::string settings = describe(setup, options.stages);
  RunPage page(setup, "compare", settings, {.folder = options.out, .writes = first});
  if (!options.quiet) std::fputs(settings.c_str(), stderr);

  Comparison comparison;
  std::optional<StageKind> running;
  try {
    comparison =
        run_stages(options, setup,
                   {.at_start =
                        [&](Trainer& training) {
                          if (training.comm().rank() == 0) running = training.spec().engine.stage;
                          page.at_start(training);
                        },
                    .after_step = [&](Trainer& training) { page.after_step(training); },
                    .on_step = [&](const StepRecord& record) { page.on_step(*running, record); }});
  } catch (const std::exception& e) {
    return end_early(e, page, {first, running ? str(" while ", name(*running), " ran") : "", ""});
  }
  if (!first) return kFine;
  ComparisonReport report{setup, comparison, options.baseline, "", presets};
  return finish(options, report, baseline, page);
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
zero2 and zero3 run together, and the gradient of each stage's first step must be within rounding of
ddp's. Activations, workspace and the total are compared with a dry run. Ψ is the number of
parameters, N the number of ranks. See tutorials/reference/variants.md.
With overlap_comm, prefetch or a simulated link, the table says how much of the communication is
hidden behind computation, and how much is exposed.
With --reproducible the four stages promise the same bits whatever N and A are, as long as N × A is
the same. --ranks 1,2,3,4,6 then runs the same micro-batches on each number of ranks, and prints one
hash of all losses, norms and weights if they agree.

More examples:
  zerolab compare --set gradient_accumulation_steps=4 --baseline runs/a/compare.json
  zerolab compare --as paper,deepspeed-1,torch-ddp --ranks 2
  zerolab compare --ranks 2 --link-bandwidth 100MB/s --set zero_optimization.overlap_comm=true
  zerolab compare --reproducible --ranks 1,2,3,4,6 --model tiny --steps 10

Other exit codes: 70 unforeseen, 74 an output could not be written, 130 Ctrl-C, 143 SIGTERM)";

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  static CompareOptions options;
  Flags flags(app, invocation, "compare",
              "the same seed and data under several stages: equality, memory, traffic",
              [] { return compare(options); });
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
  flags.footer(kCompareFooter);
}

}  // namespace zl::cli
