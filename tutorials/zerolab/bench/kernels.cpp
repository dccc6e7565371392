// zerolab bench kernels: each kernel alone, as a share of the device's limits.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/kernel_cases.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/comma_list.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kCpuRows = 256, kGpuRows = 8192;

struct KernelOptions : RunOptions {
  std::vector<Dtype> precisions = {Dtype::f32};
  int64_t rows = 0;  // 0: by the device
  std::string model = "gpt2";
  int64_t samples = 7;
  std::string only;
};

KernelSizes sizes_of(const KernelOptions& options, const DeviceChoice& device) {
  const GptConfig model = named_gpt(options.model);
  const int64_t rows = options.rows       ? options.rows
                       : device.on_gpus() ? kGpuRows
                                          : kCpuRows,
                window = std::min(rows, model.block_size);
  require_input(rows % window == 0, "--rows ", rows, " is not a multiple of the sequence length, ",
                window, " tokens; try ", rows / window * window);
  return {.rows = rows,
          .window = window,
          .width = model.width,
          .head = model.width / model.heads,
          .vocab = model.vocab};
}

std::vector<KernelCase> chosen_cases(const KernelSizes& sizes, const std::string& only) {
  std::vector<KernelCase> chosen;
  std::string names;
  for (const KernelCase& c : kernel_cases(sizes)) {
    names += (names.empty() ? "" : "; ") + c.kernel;
    if (c.kernel.find(only) != std::string::npos) chosen.push_back(c);
  }
  require_input(!chosen.empty(), "--only '", only, "' is part of no name among: ", names);
  return chosen;
}

struct Limits {
  double copy, operations;  // [B/s], [FLOP/s]
};

Json measure(Workbench& bench, const KernelCase& c, Dtype dtype, int samples, Limits limits) {
  if (interrupt_requested()) throw Interrupted();
  const Work work = c.prepare(bench, dtype);
  const Workbench::Count count = bench.count(work);
  const Spread seconds = bench.time(work, samples);
  const auto bytes = double(count.bytes), operations = double(count.operations);
  const double copy = bytes / limits.copy, arithmetic = operations / limits.operations;
  return {{"kernel", c.kernel},
          {"shape", c.shape},
          {"precision", precision_name(dtype)},
          {"operations", count.operations},
          {"bytes", count.bytes},
          {"seconds", seconds},
          {"bytes_per_second", bytes / seconds.median},
          {"operations_per_second", operations / seconds.median},
          {"bound", copy >= arithmetic ? "copy" : "operations"},
          {"share", std::max(copy, arithmetic) / seconds.median}};
}

Json measure(const KernelOptions& options) {
  const bool fp32 = std::ranges::count(options.precisions, Dtype::f32) > 0;  // --tf32 needs it
  const DeviceChoice device =
      choose_device(options, fp32 ? Dtype::f32 : options.precisions.front(), 1);
  require_threads_used(device.kind, device.threads, false);
  const KernelSizes sizes = sizes_of(options, device);
  const std::vector<KernelCase> cases = chosen_cases(sizes, options.only);
  Progress progress(int64_t(1 + options.precisions.size() * (1 + cases.size())), options.quiet);
  Workbench bench(device);
  progress.item("copy bandwidth");
  Limits limits{.copy = bench.copy_rate(), .operations = 0};
  Json rates, kernels = Json::array();
  for (const Dtype dtype : options.precisions) {
    const char* precision = precision_name(dtype);
    progress.item(str("peak FLOP/s in ", precision));
    rates[precision] = limits.operations = bench.operation_rate(dtype);
    for (const KernelCase& c : cases) {
      progress.item(str(c.kernel, " ", c.shape, " in ", precision));
      kernels.push_back(measure(bench, c, dtype, int(options.samples), limits));
    }
  }
  progress.clear();
  return {{"schema", 1},
          {"command", "bench kernels"},
          {"ok", true},
          {"device", name(device.kind)},
          {"device_name", device.name()},
          {"tf32", device.tf32},
          {"threads", device.threads},
          {"model", options.model},
          {"rows", sizes.rows},
          {"window", sizes.window},
          {"samples", options.samples},
          {"copy_bytes_per_second", limits.copy},
          {"operations_per_second", rates},
          {"kernels", kernels}};
}

std::string kernels_text(const Json& report) {
  const auto giga = [](double per_second) {
    return per_second == 0     ? "-"
           : per_second < 1e12 ? digits(per_second / 1e9, 3)
                               : str(int64_t(per_second / 1e9 + 0.5));
  };
  std::string head =
      str("one rank", report["threads"] == 1 ? "" : str(" of ", report["threads"], " threads"),
          " on ", report["device_name"].get<std::string>(),
          report["tf32"].get<bool>() ? ", fp32 matmuls and attention in TF32" : "", "; B·T ",
          report["rows"], ", median of ", report["samples"],
          " samples\nlimits: ", giga(report["copy_bytes_per_second"]), " GB/s (copy)");
  for (const auto& [precision, rate] : report["operations_per_second"].items())
    head += str(", ", giga(rate), " GFLOP/s (",
                report["device"] == "cpu" ? "multiply-adds" : "matmul", " in ", precision, ")");
  TextTable table;
  table.row({"kernel", "shape", "type", "median", "min", "max", "GB/s", "GFLOP/s", "share", "of"});
  for (const Json& r : report["kernels"]) {
    const Json& seconds = r["seconds"];
    table.row({r["kernel"], r["shape"], r["precision"], short_seconds(seconds["median"]),
               short_seconds(seconds["min"]), short_seconds(seconds["max"]),
               giga(r["bytes_per_second"]), giga(r["operations_per_second"]),
               str(int(100 * r["share"].get<double>() + 0.5), " %"), r["bound"]});
  }
  return head + "\n\n" + table.text() +
         "\nGB/s counts each input and output once; GFLOP/s counts the arithmetic of the formula.\n"
         "The share is of the tighter limit. More than 100 % of copy means that the data stayed "
         "in\n"
         "a cache; a larger --rows avoids that.\n";
}

int bench_kernels(const KernelOptions& options) {
  print_results(measure(options), options.json, kernels_text);
  return 0;
}

constexpr const char* kKernelsFooter =
    R"(Times each kernel of a GPT's training step alone, on random data. "embedding_backward, text"
takes the shipped text's tokens: one is frequent, and all its rows are added to one row of the
table. A kernel cannot be faster than the tighter of two limits: copy bandwidth, and peak FLOP/s
(CPU: multiply-adds of one core, with --threads N of N cores, if there are as many; GPU: the best
large matmul of that type). "share" is how much of it the kernel reaches (the roofline model,
Williams et al. 2009). A sample repeats the kernel for at least a millisecond, after a warm-up. On
a CPU all types compute in fp32: bf16 and fp16 save bytes, not time.

Examples:
  zerolab bench kernels
  zerolab bench kernels --precision fp32,bf16 --only matmul
  zerolab bench kernels --model small --rows 1024 --threads 2
  zerolab bench kernels --device cuda --tf32 --json > kernels.json

Exit codes: 0 fine, 2 usage, 3 out of memory (try fewer --rows), 130 Ctrl-C)";

}  // namespace

void add_bench_kernels(CLI::App& bench, Invocation& invocation) {
  static KernelOptions options;
  Flags flags(bench, invocation, "kernels",
              "each kernel's time and its share of the device's limits",
              [] { return bench_kernels(options); });
  flags.group("What");
  flags.value("--precision", "LIST", "fp32, bf16, fp16, separated by commas (default fp32)",
              [](const auto& text) {
                options.precisions.clear();
                for (const std::string& word : comma_list(text)) {
                  const Dtype dtype = read_precision(word);
                  if (std::ranges::count(options.precisions, dtype) == 0)
                    options.precisions.push_back(dtype);
                }
              });
  flags.value("--model", "NAME", "the model whose layers are measured (default gpt2)",
              [](const auto& text) {
                named_gpt(text);  // throws if there is none
                options.model = text;
              });
  flags.value(
      "--rows", "N",
      str("tokens of a micro-batch, B·T: at most the model's block_size, or a multiple of it\n",
          "(default ", kCpuRows, ", on GPUs ", kGpuRows, ")"),
      [](const auto& text) { options.rows = read_count(text, 1, 1 << 20); });
  flags.value("--samples", "N", "samples of each kernel (default 7)",
              [](const auto& text) { options.samples = read_count(text, 1, 1000); });
  flags.value("--only", "TEXT", "kernels whose name contains TEXT, such as matmul",
              [](const auto& text) { options.only = text; });
  add_shared_flags(flags, options);
  flags.footer(kKernelsFooter);
}

}  // namespace zl::cli
