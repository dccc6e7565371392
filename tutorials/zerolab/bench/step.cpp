// zerolab bench step: a training step on one rank, then on several, without communication and under
// each stage.

#include "tutorials/zerolab/bench/step.h"

#include <algorithm>
#include <cstdio>

#include "tensor/io/pending_file.h"
#include "tutorials/zerolab/bench/bench.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

int bench_step(const StepOptions& options) {
  require_input(!options.profile || options.sweeps.empty(),
                "--profile is of one model; leave out --sweep");
  require_input(!options.force || !options.csv.empty(),
                "--force replaces the file of --csv, which is not given");
  if (!options.csv.empty()) require_output_file(options.csv, "", options.force);
  std::vector<StepPoint> points = step_points(options);
  const RunSetup& setup = points.front().setup;
  require_input(!options.profile || !setup.device.on_gpus(),
                "--profile times the CPU's kernels; a GPU's are seen with nsys, or with --trace of "
                "'zerolab train'");
  require_input(!options.profile || !setup.spec.config.offload_optimizer,
                "--profile times what is on the device; leave out offload_optimizer");
  if (!options.quiet) note_reports_of_train(setup.spec.config, "bench step");
  if (!options.csv.empty()) PendingFile{options.csv};  // can be written; nothing stays
  const StepReport report = measure_steps(options, std::move(points));
  if (!options.csv.empty()) {
    const std::string csv = step_csv(report);
    PendingFile file(options.csv);
    file.write(csv.data(), csv.size());
    file.commit();
  }
  std::fputs((options.json ? step_json(report) : step_text(report)).c_str(), stdout);
  return std::ranges::any_of(report.rows, &StepRow::ran) ? 0 : 3;
}

constexpr const char* kFooter =
    R"(First one rank, which communicates nothing; then --ranks ranks that each train alone, at the same time, which shows
what they cost each other by sharing caches and memory; then as many under ddp and each listed stage. Each rank has a
micro-batch of its own. So "to independent" is what communication costs, and "to ddp" what a stage costs.
Every row is measured in each of --rounds rounds, for its share of --steps: what else the machine does meets all rows,
and a ratio is the median of the rounds' ratios. The first steps of a row in a round, --warm-up, are not timed: they
fill caches and take memory from the system. The share of the peak counts the operations that training needs (6 per
parameter and token, and attention's), not those that recomputation adds, against the best that the device was measured
to do (model FLOPs utilisation, Chowdhery et al. 2022). Ranks beyond the cores, or that share a GPU, share its peak.
What a stage costs in time here is what it costs among threads of this machine; 'zerolab plan' counts its traffic.

A sweep gives one setting several values, and leaves all others as the flags say: n_layer, n_head, n_embd, block_size,
vocab_size, micro_batch, ranks. "grows" is the time beside that of the value before.
--profile adds where a step goes: the time in each kernel on one rank, by a clock that is read before and after each
call, and what is left, which is the cost of tape, events and ledger.

Examples:
  zerolab bench step
  zerolab bench step --model tiny --ranks 2 --stages zero2,zero3 --steps 20
  zerolab bench step --ranks 1 --stages ddp --profile
  zerolab bench step --ranks 1 --stages ddp --sweep n_layer=1,2,4,8 --sweep n_embd=64,128,256 --csv sizes.csv
  zerolab bench step --sweep ranks=1,2,4 --rounds 5 --csv ranks.csv
  zerolab bench step --model gpt2 --precision bf16 --micro-batch 8 --device cuda

Exit codes: 0 fine, 2 usage or configuration, 3 nothing fits, 4 communication, 130 Ctrl-C)";

}  // namespace

void add_bench_step(CLI::App& bench, Invocation& invocation) {
  static StepOptions options;
  Flags flags(bench, invocation, "step",
              "how long a training step takes, on one rank and under each stage",
              [] { return bench_step(options); });
  flags.group("What");
  flags.value("--stages", "LIST",
              "of ddp, zero1, zero2, zero3 with commas between, beside ddp (default all)",
              [](const auto& text) { options.stages = read_stages(text); });
  flags.value("--steps", "N", "that are timed, of each row (default 10)",
              [](const auto& text) { options.timed = read_count(text, 1, 100'000); });
  flags.value("--warm-up", "N", "steps before them, in each round (default 2)",
              [](const auto& text) { options.warm_up = read_count(text, 0, 100'000); });
  flags.value("--rounds", "N",
              "into which the steps are divided; each takes every row (default 3, at most --steps)",
              [](const auto& text) { options.rounds = read_count(text, 1, 100'000); });
  flags.value("--micro-batch", "B",
              "windows of a micro-batch of each rank (default 4, or --config's)",
              [](const auto& text) { options.micro_batch = read_count(text, 1, 1 << 20); });
  flags.toggle("--profile", "also the time in each kernel, and outside of all of them",
               options.profile);
  add_settings_flags(flags, options);
  flags.group("Sizes");
  flags.values("--sweep", "NAME=LIST",
               "one setting with several values, such as n_layer=1,2,4; may be given several times",
               [](const auto& text) { options.sweeps.push_back(read_sweep(text)); });
  flags.value("--csv", "FILE", "a line for each row, beside the table or --json",
              [](const auto& text) {
                require_input(!text.empty(), "the name is empty");
                options.csv = text;
              });
  flags.toggle("--force", "replace FILE if it exists", options.force);
  add_rank_flags(flags, options, kStepRanks);
  add_model_flags(flags, options);
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
