// zerolab bench kernels: each kernel alone, beside what the device can do at most.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/bench.h"
#include "tutorials/zerolab/bench/bench_progress.h"
#include "tutorials/zerolab/bench/kernel_cases.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kCpuRows = 256, kGpuRows = 8192, kLongestWindow = 1024;

struct KernelOptions : RunOptions {
  std::vector<Dtype> precisions = {Dtype::f32};
  std::optional<int64_t> rows;
  int64_t samples = 7;
  std::string only;
  bool quick = false;
};

// What one kernel did, and which of the device's two limits is the nearer one.
struct KernelResult {
  std::string kernel, shape;
  Dtype dtype;
  Workbench::Count count;  // of one call
  Spread seconds;
  double by_copy, by_operations;  // [s] that the call takes at the device's copy bandwidth, at its
                                  // rate of operations
  bool copy_bound() const { return by_copy >= by_operations; }
  double share() const { return std::max(by_copy, by_operations) / seconds.median; }
};

struct KernelReport {
  DeviceChoice device;
  KernelSizes sizes;
  int64_t samples;
  double copy_rate = 0;                                   // [B/s]
  std::vector<std::pair<Dtype, double>> operation_rates;  // [1/s]
  std::vector<KernelResult> results;
};

std::string short_seconds(double s) {
  return s < 1e-3 ? digits(1e6 * s, 3) + " µs"
         : s < 1  ? digits(1e3 * s, 3) + " ms"
                  : digits(s, 3) + " s";
}

std::string giga(double per_second) {
  return per_second == 0     ? "-"
         : per_second < 1e12 ? digits(per_second / 1e9, 3)
                             : str(int64_t(per_second / 1e9 + 0.5));
}

KernelSizes sizes_of(const KernelOptions& options, const DeviceChoice& device) {
  KernelSizes sizes =
      options.quick ? quick_sizes() : KernelSizes{.rows = device.on_gpus() ? kGpuRows : kCpuRows};
  if (options.quick && !options.rows) return sizes;
  if (options.rows) sizes.rows = *options.rows;
  sizes.window = std::min(sizes.rows, options.quick ? sizes.window : kLongestWindow);
  require_input(sizes.rows % sizes.window == 0, "--rows ", sizes.rows,
                " is not a number of whole windows of ", sizes.window, " tokens; try ",
                sizes.rows / sizes.window * sizes.window);
  return sizes;
}

KernelReport measure(const KernelOptions& options) {
  const bool any_fp32 = std::ranges::find(options.precisions, Dtype::f32) !=
                        options.precisions.end();  // what --tf32 is about
  KernelReport report{
      .device = choose_device(options, any_fp32 ? Dtype::f32 : options.precisions.front(), 1),
      .samples = options.samples};
  report.sizes = sizes_of(options, report.device);
  std::vector<KernelCase> cases = kernel_cases(report.sizes);
  std::erase_if(
      cases, [&](const KernelCase& c) { return c.kernel.find(options.only) == std::string::npos; });
  if (cases.empty()) {
    std::string all;
    for (const KernelCase& c : kernel_cases(report.sizes))
      all += (all.empty() ? "" : "; ") + c.kernel;
    throw InputError(str("--only '", options.only, "' is part of no name among: ", all));
  }
  BenchProgress progress(int64_t(1 + options.precisions.size() * (1 + cases.size())),
                         options.quiet);
  Workbench bench(report.device);
  progress.next("copy bandwidth");
  report.copy_rate = bench.copy_rate();
  for (const Dtype dtype : options.precisions) {
    progress.next(str("rate of operations in ", precision_name(dtype)));
    const double rate = bench.operation_rate(dtype);
    report.operation_rates.emplace_back(dtype, rate);
    for (const KernelCase& c : cases) {
      progress.next(str(c.kernel, " ", c.shape, " in ", precision_name(dtype)));
      if (interrupt_requested()) throw Interrupted();
      const std::function<void()> work = c.prepare(bench.memory(), dtype);
      const Workbench::Count count = bench.count(work);
      report.results.push_back(
          {c.kernel, c.shape, dtype, count, bench.time(work, int(options.samples)),
           double(count.bytes) / report.copy_rate, double(count.operations) / rate});
    }
  }
  return report;
}

std::string text(const KernelReport& report) {
  std::string head =
      str("one rank on ", report.device.name(), report.device.tf32 ? ", fp32 products in TF32" : "",
          "; B·T ", report.sizes.rows, ", median of ", report.samples,
          " samples\nat most: ", giga(report.copy_rate), " GB/s by copying");
  for (const auto& [dtype, rate] : report.operation_rates)
    head +=
        str(", ", giga(rate), " GFLOP/s by ",
            report.device.on_gpus() ? "products" : "multiply-adds", " in ", precision_name(dtype));
  TextTable table;
  table.row({"kernel", "shape", "type", "median", "min", "max", "GB/s", "GFLOP/s", "share", "of"});
  for (const KernelResult& r : report.results)
    table.row({r.kernel, r.shape, precision_name(r.dtype), short_seconds(r.seconds.median),
               short_seconds(r.seconds.least), short_seconds(r.seconds.most),
               giga(double(r.count.bytes) / r.seconds.median),
               giga(double(r.count.operations) / r.seconds.median),
               str(int(100 * r.share() + 0.5), " %"), r.copy_bound() ? "copy" : "operations"});
  return head + "\n\n" + table.text() +
         "\nGB/s counts each input and output once, GFLOP/s the arithmetic of the formula. The "
         "share is of the limit that is "
         "nearer.\n"
         "More than 100 % of copy: the data stayed in a cache, which --rows can outgrow.\n";
}

std::string json(const KernelReport& report) {
  Json json{{"schema", 1},
            {"command", "bench kernels"},
            {"ok", true},
            {"device", name(report.device.kind)},
            {"device_name", report.device.name()},
            {"tf32", report.device.tf32},
            {"rows", report.sizes.rows},
            {"window", report.sizes.window},
            {"samples", report.samples},
            {"copy_bytes_per_second", report.copy_rate}};
  for (const auto& [dtype, rate] : report.operation_rates)
    json["operations_per_second"][precision_name(dtype)] = rate;
  json["kernels"] = Json::array();
  for (const KernelResult& r : report.results)
    json["kernels"].push_back(
        {{"kernel", r.kernel},
         {"shape", r.shape},
         {"precision", precision_name(r.dtype)},
         {"operations", r.count.operations},
         {"bytes", r.count.bytes},
         {"seconds",
          {{"median", r.seconds.median}, {"min", r.seconds.least}, {"max", r.seconds.most}}},
         {"bytes_per_second", double(r.count.bytes) / r.seconds.median},
         {"operations_per_second", double(r.count.operations) / r.seconds.median},
         {"bound", r.copy_bound() ? "copy" : "operations"},
         {"share", r.share()}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int bench_kernels(const KernelOptions& options) {
  const KernelReport report = measure(options);
  std::fputs((options.json ? json(report) : text(report)).c_str(), stdout);
  return 0;
}

std::vector<Dtype> read_precisions(const std::string& text) {
  std::vector<Dtype> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const Dtype dtype = read_precision(text.substr(begin, end - begin));
    if (std::ranges::find(all, dtype) == all.end()) all.push_back(dtype);
    begin = end + 1;
  }
  return all;
}

constexpr const char* kFooter =
    R"(Each kernel of a training step of GPT-2 (124M) alone, on random data: matrices in the three layouts that a layer needs,
layer norm, attention, GELU, sums, embedding, loss, one block's update. First it measures how fast the device copies and
how many operations it makes at most (CPU: multiply-adds of one core, as a rank is one thread; GPU: the best large
product of that type). A kernel can be no faster than the nearer of both limits allows: with few operations per byte
that is copying. "share" is how much of that limit it reaches (a roofline, Williams et al. 2009).
A sample repeats the kernel until a millisecond has passed, by the device's own clock, after a warm-up.
On a CPU all types compute in fp32: bf16 and fp16 save bytes, not time.

Examples:
  zerolab bench kernels
  zerolab bench kernels --precision fp32,bf16 --only matmul
  zerolab bench kernels --device cuda --tf32 --json > kernels.json

Exit codes: 0 fine, 2 usage, 3 out of memory (try fewer --rows), 130 Ctrl-C)";

}  // namespace

void add_bench_kernels(CLI::App& bench, Invocation& invocation) {
  static KernelOptions options;
  Flags flags(bench, invocation, "kernels",
              "how fast each kernel is, and how near to what the device can do",
              [] { return bench_kernels(options); });
  flags.group("What");
  flags.value("--precision", "LIST", "of fp32, bf16, fp16 with commas between (default fp32)",
              [](const auto& text) { options.precisions = read_precisions(text); });
  flags.value("--rows", "N",
              str("tokens of a micro-batch, B·T: up to ", kLongestWindow,
                  ", or windows of so many (default ", kCpuRows, ",\non GPUs ", kGpuRows, ")"),
              [](const auto& text) { options.rows = read_count(text, 1, 1 << 20); });
  flags.value("--samples", "N", "of each kernel (default 7)",
              [](const auto& text) { options.samples = read_count(text, 1, 1000); });
  flags.value("--only", "TEXT", "kernels whose name has this in it, such as matmul",
              [](const auto& text) { options.only = text; });
  flags.toggle("--quick", "tiny sizes: whether it runs, not how fast", options.quick);
  flags.group("Where");
  add_device_flags(flags, options);
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
