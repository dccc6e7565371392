// zerolab bench kernels: each kernel of a training step, as a share of the device's limits.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "nn/formats/named_gpt.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/bench/timed_backend.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kCpuRows = 256, kGpuRows = 8192, kStepsBefore = 2;

struct KernelOptions : RunOptions {
  int64_t rows = 0;  // 0: by the device
  std::string model = "gpt2";
  int64_t samples = 7;
};

double total(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

// Training with ddp on one rank, in sequences as long as the model allows. One block has all
// kernels of a model.
RunSetup set_up(KernelOptions options) {
  const int64_t longest = named_gpt(options.model).block_size;
  options.set("--model", "zerolab.model", options.model);
  options.n_layer = options.n_layer.value_or(1);
  options.block_size = std::min(options.rows, longest);
  require_input(options.rows % *options.block_size == 0, "--rows ", options.rows,
                " is not a multiple of the sequence length, ", longest, " tokens; try ",
                options.rows / longest * longest);
  RunSetup setup = set_up_run(options, 1);
  setup.spec.engine.stage = StageKind::ddp;
  setup.spec.micro_batch = options.rows / *options.block_size;
  setup.spec.steps = kStepsBefore + options.samples;
  return setup;
}

// One row for each kernel and size, the longest first, beside the limits of the device: `copy`
// [B/s] and `peak` [FLOP/s].
std::vector<Json> rows_of(const TimedSteps& steps, const char* precision, double copy,
                          double peak) {
  const double all = total(steps.seconds);
  const auto n = double(steps.seconds.size());
  std::vector<Json> rows;
  for (const auto& [kernel, times] : steps.calls) {
    const Spread each = spread_of(times);
    const double calls = double(times.size()) / n, bytes = double(kernel.bytes),
                 operations = double(kernel.operations), seconds = total(times);
    rows.push_back({{"kernel", kernel.name},
                    {"precision", precision},
                    {"calls_per_step", calls},
                    {"operations", kernel.operations},
                    {"bytes", kernel.bytes},
                    {"seconds", each},
                    {"bytes_per_second", bytes / each.median},
                    {"operations_per_second", operations / each.median},
                    {"bound", bytes / copy >= operations / peak ? "copy" : "operations"},
                    {"share", std::max(bytes / copy, operations / peak) / each.median},
                    {"seconds_per_step", seconds / n},
                    {"share_of_step", seconds / all},
                    {"operations_per_step", calls * operations},
                    {"bytes_per_step", calls * bytes}});
  }
  std::ranges::stable_sort(rows, std::greater(),
                           [](const Json& row) { return row["seconds_per_step"].get<double>(); });
  return rows;
}

int bench_kernels(KernelOptions options) {
  if (options.rows == 0) {
    const RunOptions where{.device = options.device, .quiet = true};
    options.rows = choose_device(where, Dtype::f32, 1).on_gpus() ? kGpuRows : kCpuRows;
  }
  const RunSetup setup = set_up(options);
  const Dtype dtype = setup.spec.engine.precision;
  const char* precision = precision_name(dtype);
  Progress progress(2, options.quiet);
  progress.item("copy bandwidth and peak FLOP/s");
  const double copy = copy_rate(setup.device), peak = operation_rate(setup.device, dtype);
  progress.item(plural(setup.spec.steps, "step"));
  const TimedSteps steps = time_kernels(setup.spec, kStepsBefore);
  progress.clear();
  double inside = 0;  // [s]
  for (const auto& [kernel, times] : steps.calls) inside += total(times);
  Json report = document<Json>("bench kernels", setup.device, 2);
  report.update({{"model", options.model},
                 {"rows", options.rows},
                 {"window", setup.spec.window},
                 {"samples", options.samples},
                 {"copy_bytes_per_second", copy},
                 {"operations_per_second", {{precision, peak}}},
                 {"kernels", rows_of(steps, precision, copy, peak)},
                 {"share_outside_kernels", {{precision, 1 - inside / total(steps.seconds)}}}});
  print_results(report, options.json, "kernels",
                {{"kernel", "/kernel", as_is},
                 {"data", "/bytes", as_bytes},
                 {"calls", "/calls_per_step", [](const Json& n) { return digits(n, 4); }},
                 {"of step", "/share_of_step", as_percent},
                 {"median", "/seconds/median", as_seconds},
                 {"min", "/seconds/min", as_seconds},
                 {"max", "/seconds/max", as_seconds},
                 {"GB/s", "/bytes_per_second", as_giga},
                 {"GFLOP/s", "/operations_per_second", as_giga},
                 {"share", "/share", as_percent},
                 {"of", "/bound", as_is}});
  return kFine;
}

constexpr const char* kKernelsFooter =
    R"(Times each kernel of a GPT's training step, in steps of one block of the model on one rank;
with --n-layer of the whole model the calls are those of its step. "share" compares a kernel with
the tighter of two limits: copy bandwidth, and the FLOP/s of the best square matmul, of a GPU or of
the rank's threads (the roofline model, Williams et al. 2009). More than 100 % of copy means
that the data stayed in a cache, and a larger --rows avoids that. The sizes of a matmul are M×N×K.

  zerolab bench kernels --precision bf16 | grep matmul
  zerolab bench kernels --model small --rows 1024 --threads 2

Exit codes: 0 fine, 2 usage, 3 out of memory (try fewer --rows), 130 Ctrl-C)";

}  // namespace

void add_bench_kernels(CLI::App& bench, Invocation& invocation) {
  static KernelOptions options;
  Flags flags(bench, invocation, "kernels",
              "each kernel's time and its share of the device's limits",
              [] { return bench_kernels(options); });
  flags.group("What");
  flags.value("--model", "NAME", "the model whose block is measured (default gpt2)",
              [](const auto& text) {
                named_gpt(text);  // throws if there is none
                options.model = text;
              });
  flags.add("--rows", "N", options.rows, count_within(1, 1 << 20),
            "tokens of a micro-batch, B·T: at most the model's block_size, or a multiple of it\n"
            "(default 256, on GPUs 8192)");
  flags.add("--samples", "N", options.samples, count_within(1, 1000), "timed steps (default 7)");
  add_shared_flags(flags, options);
  flags.footer(kKernelsFooter);
}

}  // namespace zl::cli
