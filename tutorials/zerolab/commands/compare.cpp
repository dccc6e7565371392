// zerolab compare: the same seed and data under several stages.

#include <cstdio>
#include <filesystem>
#include <map>

#include "tensor/io/pending_file.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/run_setup.h"
#include "tutorials/zerolab/run/run_trace.h"

namespace zl::cli {
namespace {

constexpr int kDefaultRanks = 4;

struct CompareOptions : RunOptions {
  std::string trace;  // empty: none
  std::vector<StageKind> stages = {kStages, kStages + 4};
};

// The files of --out. They are opened before anything runs, so that a folder that cannot be written
// costs no time.
class ReportFolder {
 public:
  explicit ReportFolder(const std::string& path) : path_(path) {
    std::error_code error;
    for (const char* taken : {"metrics.jsonl", "model.safetensors"})
      require_input(!std::filesystem::exists(path_ / taken, error), "--out ", path,
                    " already holds a run (", taken, "); name another folder");
    std::filesystem::create_directories(path_, error);
    require_input(!error, "--out ", path, " cannot be created: ", error.message());
    PendingFile(file("compare.json"));  // can be written; nothing stays
  }
  void write(const std::string& name, const std::string& text) const {  // whole or not at all
    PendingFile pending(file(name));
    pending.write(text.data(), text.size());
    pending.commit();
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// --trace run.json: run-ddp.json, run-zero1.json and so on.
class StageTraces {
 public:
  // All names are checked now, whichever stages will run.
  StageTraces(const std::string& path, int ranks, bool writes) {
    const std::filesystem::path file(path);
    for (const StageKind stage : kStages) {
      const std::string name =
          file.stem().string() + "-" + zl::name(stage) + file.extension().string();
      if (!path.empty())
        traces_.try_emplace(stage, (file.parent_path() / name).string(), ranks, writes);
    }
  }
  StageHooks hooks() {
    if (traces_.empty()) return {};
    return {.at_start = [this](StageKind stage,
                               RankTraining& training) { traces_.at(stage).at_start(training); },
            .at_end = [this](StageKind stage,
                             RankTraining& training) { traces_.at(stage).at_end(training); }};
  }
  std::string summary(const Comparison& comparison) const {
    std::string text;
    for (const StageOutcome& s : comparison.stages)
      if (!traces_.empty() && !s.out_of_memory) text += traces_.at(s.stage).summary();
    return text;
  }

 private:
  std::map<StageKind, RunTrace> traces_;
};

int compare(CompareOptions options) {
  const std::optional<LaunchedRank> process = launched_rank(options);
  const bool first = is_first(process);  // else another process writes and speaks for this one
  if (!first) hush(options);
  const RunSetup setup = set_up_run(options, kDefaultRanks, process);
  TrainingSpec machine = setup.spec;
  machine.host_memory = 0;  // a stage beyond that limit is reported, not refused
  require_memory(machine, setup, options.stages);
  std::optional<ReportFolder> folder;
  if (!options.out.empty() && first) folder.emplace(options.out);
  StageTraces traces(options.trace, setup.spec.ranks, first);
  const Terminal terminal = standard_error(options.color);
  if (!options.quiet) note_reports_of_train(setup.spec.config, "compare");
  if (!options.quiet) std::fputs(describe(setup, "ddp and each listed stage").c_str(), stderr);

  std::optional<Progress> progress;
  std::optional<StageKind> running;
  Comparison comparison;
  try {
    comparison = compare_stages(
        setup.spec, options.stages,
        [&](StageKind stage, const StepRecord& record) {
          if (options.quiet) return;
          if (running != stage) {
            progress.reset();  // ends the line of the stage before
            progress.emplace(terminal, setup.spec.config.steps, name(stage));
            running = stage;
          }
          progress->step(record);
        },
        traces.hooks());
  } catch (const Interrupted&) {
    if (!first) return 130;
    progress.reset();
    std::fprintf(stderr, "zerolab: interrupted%s; nothing was written\n",
                 running ? str(" while ", name(*running), " ran").c_str() : "");
    return 130;
  }
  if (!first) return 0;
  progress.reset();
  if (!options.quiet) std::fputs(traces.summary(comparison).c_str(), stderr);
  const std::string json = comparison_json(comparison, setup.spec);
  if (folder) {
    folder->write("compare.json", json);
    folder->write("report.html", comparison_html(comparison, setup.spec));
  }
  std::fputs((options.json ? json : comparison_text(comparison, setup.spec)).c_str(), stdout);
  if (folder && !options.json)
    std::printf("Files: %s, %s\n", folder->file("report.html").c_str(),
                folder->file("compare.json").c_str());
  if (!comparison.any_fits()) return 3;
  return comparison.ok() ? 0 : 1;
}

constexpr const char* kFooter =
    R"(ddp always runs first, listed or not. Compared are the bits of every step's loss and gradient norm and of all
weights. With one micro-batch per step all stages promise ddp's bits; with several, zero1 promises ddp's and zero3
zero2's, since the pairs add in another order; listing zero3 then brings zero2. Memory and traffic are compared with closed formulas, activations
and the total with a dry run. Ψ is the number of parameters, N that of ranks.
--out DIR receives report.html and compare.json.

Examples:
  zerolab compare
  zerolab compare --model tiny --ranks 3 --steps 20 --stages zero1,zero3
  zerolab compare --set gradient_accumulation_steps=4 --out runs/accumulated
  zerolab compare --device-memory 12MiB
  zerolab compare --device cuda --ranks 3 --precision bf16

Exit codes: 0 all equal and as predicted, 1 something was not or no loss scale is small enough, 2 usage or configuration, 3 no stage fits,
            4 communication, 70 unforeseen, 130 Ctrl-C)";

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  static CompareOptions options;
  Flags flags(app, invocation, "compare",
              "the same seed and data under several stages: equality, memory, traffic",
              [] { return compare(options); });
  add_run_flags(flags, options);
  flags.group("Ranks");
  flags.value("--stages", "LIST", "of ddp, zero1, zero2, zero3 with commas between (default all)",
              [](const auto& text) { options.stages = read_stages(text); });
  add_rank_flags(flags, options, kDefaultRanks);
  add_model_flags(flags, options);
  add_data_flags(flags, options);
  flags.group("Output");
  flags.value("--out", "DIR", "where report.html and compare.json go (default nowhere)",
              [](const auto& text) {
                require_input(!text.empty(), "the name is empty");
                options.out = text;
              });
  flags.value("--trace", "FILE",
              "timelines for ui.perfetto.dev, of stage ddp in FILE's name with -ddp\nbefore its "
              "ending, and so on (default none)",
              [](const auto& text) {
                require_input(!text.empty(), "the name is empty");
                options.trace = text;
              });
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
