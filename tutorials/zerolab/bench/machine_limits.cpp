// zerolab bench machine: what the CPU can do at most, of which everything else is a share.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tutorials/zerolab/bench/bench.h"
#include "tutorials/zerolab/bench/bench_progress.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMatrix = 512, kMiB = int64_t(1) << 20;

struct MachineOptions : RunOptions {
  std::optional<int> cores;
  std::optional<int64_t> array;
  int samples = 15;
  bool quick = false;
};

// One thing that is measured: on one core, then on all of them together.
struct Limit {
  std::string what, key;  // for people, for programs
  const char* counts;     // "operations" or "bytes", of which there are so many per second
  int64_t bytes = 0;      // [B] that it goes over on all cores; 0: none to speak of
  std::function<Spread(const CoreRun&)> measure;
  Spread one = {}, all = {};
};

struct Delay {
  const char *what, *key;
  Spread seconds;
};

struct MachineReport {
  int cores, samples;
  int64_t array;  // [B]
  std::vector<Limit> limits;
  std::vector<Delay> delays;
  double operations_per_second = 0;  // of one core: the best sample of the best multiply-adds

  const Limit& product() const {
    return *std::ranges::find_if(limits, [](const Limit& limit) { return limit.key == "product"; });
  }
  // Of the multiply-adds' best sample, on one or on all cores; 0 if there is no such measurement.
  double product_share(Spread Limit::*cores) const {
    double peak = 0;
    for (const Limit& limit : limits)
      if (limit.key.starts_with("multiply_add")) peak = std::max(peak, (limit.*cores).most);
    return peak > 0 ? (product().*cores).median / peak : 0;
  }
};

// Far beyond the caches, but no more than a part of the memory that is left.
int64_t array_of(const MachineOptions& options) {
  if (options.array) return *options.array;
  if (options.quick) return 4 * kMiB;
  const int64_t wanted = std::clamp(8 * cache_bytes(3), 64 * kMiB, 512 * kMiB),
                left = available_memory();
  return left > 0 ? std::clamp(left / 12, kMiB, wanted) : wanted;
}

Limit stream_limit(MemoryPass stream, int64_t array, const std::string& where) {
  const int64_t all = array * arrays_of(stream);
  return {.what = str(name(stream), " in ", where),
          .key = str(name(stream), "_", where),
          .counts = "bytes",
          .bytes = all,
          .measure = [=](const CoreRun& run) {
            return stream_rate(stream, where == "L2" ? array * run.cores : array, run);
          }};
}

std::vector<Limit> limits_of(const MachineReport& report) {
  std::vector<Limit> limits;
  for (const VectorWidth width : {VectorWidth::bits_256, VectorWidth::bits_512})
    if (can_multiply_add(width))
      limits.push_back(
          {.what = str("multiply-adds, ", name(width)),
           .key = width == VectorWidth::bits_256 ? "multiply_add_avx2" : "multiply_add_avx512",
           .counts = "operations",
           .measure = [=](const CoreRun& run) { return multiply_add_rate(width, run); }});
  limits.push_back({.what = str("our product, ", kMatrix, " × ", kMatrix),
                    .key = "product",
                    .counts = "operations",
                    .bytes = 3 * 4 * kMatrix * kMatrix,
                    .measure = [](const CoreRun& run) { return product_rate(kMatrix, run); }});
  for (const MemoryPass stream : {MemoryPass::copy, MemoryPass::triad, MemoryPass::read})
    limits.push_back(stream_limit(stream, report.array, "memory"));
  // Three arrays that fill three quarters of a core's own cache, or three eighths of the one that
  // cores share.
  if (const int64_t l2 = cache_bytes(2); l2 > 0)
    limits.push_back(stream_limit(MemoryPass::triad, l2 / 4, "L2"));
  if (const int64_t l3 = cache_bytes(3); l3 > 0)
    limits.push_back(stream_limit(MemoryPass::triad, l3 / 8, "L3"));
  limits.push_back({.what = "first touch of memory",
                    .key = "first_touch",
                    .counts = "bytes",
                    .bytes = report.array / 4,
                    .measure = [bytes = report.array / 4](const CoreRun& run) {
                      return first_touch_rate(bytes, run);
                    }});
  return limits;
}

MachineReport measure(const MachineOptions& options) {
  const int usable = usable_cores();
  require_input(options.cores.value_or(1) <= usable, "--cores ", options.cores.value_or(1),
                ": this process may run on ", usable, usable == 1 ? " core" : " cores",
                "; more threads would take turns, which is no limit of the machine");
  MachineReport report{.cores = options.cores.value_or(usable),
                       .samples = options.samples,
                       .array = array_of(options)};
  report.limits = limits_of(report);
  const bool several = report.cores > 1;
  BenchProgress progress(int64_t(report.limits.size()) * (several ? 2 : 1) + (several ? 2 : 0),
                         options.quiet);
  const double seconds = options.quick ? 1e-3 : 0.01;
  for (Limit& limit : report.limits) {
    progress.next(limit.what + ", 1 core");
    limit.one = limit.measure({.cores = 1, .samples = report.samples, .seconds = seconds});
    if (several) progress.next(str(limit.what, ", ", report.cores, " cores"));
    limit.all =
        several
            ? limit.measure({.cores = report.cores, .samples = report.samples, .seconds = seconds})
            : limit.one;
    if (limit.key.starts_with("multiply_add"))
      report.operations_per_second = std::max(report.operations_per_second, limit.one.most);
  }
  if (!several) return report;
  progress.next("a word between two cores that spin");
  report.delays.push_back({"to a thread that spins", "spinning",
                           hand_over_spinning(report.samples, options.quick ? 100 : 10'000)});
  progress.next("a word to a core that sleeps");
  report.delays.push_back({"to a thread that sleeps", "sleeping",
                           hand_over_sleeping(report.samples, options.quick ? 20 : 1'000)});
  return report;
}

std::string giga(double per_second) { return digits(per_second / 1e9, 4); }
std::string range(const Spread& s) { return giga(s.least) + "–" + giga(s.most); }
std::string percent(double share) { return share > 0 ? digits(100 * share, 3) + " %" : "-"; }

std::string text(const MachineReport& report) {
  const bool several = report.cores > 1;
  const std::string huge = huge_pages();
  const std::string head = str(
      cpu_model(), ", ", report.cores, several ? " cores" : " core", "; L2 ",
      human_bytes(cache_bytes(2)), " of each, L3 ", human_bytes(cache_bytes(3)), "; pages of ",
      human_bytes(page_bytes()), huge.empty() ? "" : ", huge ones: " + huge,
      "\nkernels compiled for ", cpu_architecture(), "; median of ", report.samples,
      " samples, and least to most\n",
      optimised_build()
          ? ""
          : "this build is not optimised: its loops over memory are slower than they could be\n",
      "\n");
  TextTable table;
  const std::string all = str(report.cores, " cores");
  std::vector<std::string> titles = {"", "over", "", "1 core", "least–most"};
  if (several) titles.insert(titles.end(), {all, "least–most", "scales"});
  table.row(titles);
  for (const Limit& limit : report.limits) {
    std::vector<std::string> row = {limit.what,
                                    limit.bytes > 0 ? human_bytes(limit.bytes) : "registers",
                                    limit.counts == std::string("operations") ? "GFLOP/s" : "GB/s",
                                    giga(limit.one.median), range(limit.one)};
    if (several)
      row.insert(row.end(), {giga(limit.all.median), range(limit.all),
                             "× " + digits(limit.all.median / limit.one.median, 3)});
    table.row(row);
  }
  std::string tail;
  if (report.product_share(&Limit::one) > 0)
    tail +=
        str("Our product reaches ", percent(report.product_share(&Limit::one)),
            " of the multiply-adds' best",
            several ? str(" on one core, ", percent(report.product_share(&Limit::all)), " on ", all)
                    : "",
            ".\n");
  for (const Delay& d : report.delays)
    tail += str("A word ", d.what, " on another core takes ", digits(1e6 * d.seconds.median, 3),
                " µs (", digits(1e6 * d.seconds.least, 3), "–", digits(1e6 * d.seconds.most, 3),
                ").\n");
  return head + table.text() + "\n" + tail;
}

Json spread(const Spread& s) { return {{"median", s.median}, {"min", s.least}, {"max", s.most}}; }

std::string json(const MachineReport& report) {
  const auto or_null = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  const std::string huge = huge_pages();
  Json json{{"schema", 1},
            {"command", "bench machine"},
            {"ok", true},
            {"device_name", cpu_model()},
            {"kernels", cpu_architecture()},
            {"optimised", optimised_build()},
            {"cores", report.cores},
            {"samples", report.samples},
            {"array_bytes", report.array},
            {"cache_bytes", {{"L2", cache_bytes(2)}, {"L3", cache_bytes(3)}}},
            {"page_bytes", page_bytes()},
            {"huge_pages", huge.empty() ? Json(nullptr) : Json(huge)},
            {"operations_per_second", or_null(report.operations_per_second)},
            {"product_share_of_peak",
             {{"one_core", or_null(report.product_share(&Limit::one))},
              {"all_cores", or_null(report.product_share(&Limit::all))}}}};
  for (const Limit& limit : report.limits)
    json["limits"].push_back({{"what", limit.key},
                              {"counts", limit.counts},
                              {"over_bytes", limit.bytes},
                              {"one_core", spread(limit.one)},
                              {"all_cores", spread(limit.all)}});
  json["hand_over_seconds"] = Json::object();
  for (const Delay& d : report.delays) json["hand_over_seconds"][d.key] = spread(d.seconds);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int bench_machine(const MachineOptions& options) {
  const int64_t left = available_memory(), array = array_of(options);
  require_input(left == 0 || array <= left / 4, "--array ", human_bytes(array),
                " is wanted three times, but this machine has ", human_bytes(left),
                " left; try less");
  const MachineReport report = measure(options);
  std::fputs((options.json ? json(report) : text(report)).c_str(), stdout);
  return 0;
}

constexpr const char* kFooter =
    R"(Limits, each on one core and then on all of them at the same time, a thread on each:
  multiply-adds   fused, in registers alone, as many as a core can begin: what a product of matrices is a share of
  our product     each core has its own, as a rank has
  copy, triad,    of large arrays, which the cores share: b = a, c = a + s·b, and reading alone, counted as STREAM
  read            does; then a triad that stays in the caches, which is what small layers live on
  first touch     what the system takes to find and clear a page that is written for the first time
and how long a word takes from one core to another, which each collective pays several times.
Where all cores together do much less than one times their number, they share what is measured, or something else
runs here.

Examples:
  zerolab bench machine
  zerolab bench machine --samples 25 --json > machine.json
  taskset -c 0-7 zerolab bench machine

Exit codes: 0 fine, 2 usage, 130 Ctrl-C)";

}  // namespace

void add_bench_machine(CLI::App& bench, Invocation& invocation) {
  static MachineOptions options;
  Flags flags(bench, invocation, "machine",
              "what the CPU can do at most: operations, bytes, words between cores",
              [] { return bench_machine(options); });
  flags.group("What");
  flags.value("--cores", "N", "that work at the same time (default all that this process may use)",
              [](const auto& text) { options.cores = int(read_count(text, 1, 1024)); });
  flags.value("--array", "SIZE",
              "of each large array (default 8 times the L3 cache, 64 MiB to 512 MiB)",
              [](const auto& text) {
                options.array = read_size(text);
                require_input(*options.array >= kMiB, "'", text,
                              "' is less than 1 MiB, which stays in a cache");
              });
  flags.value("--samples", "N", "of each limit (default 15)",
              [](const auto& text) { options.samples = int(read_count(text, 1, 1000)); });
  flags.toggle("--quick", "short samples and small arrays: whether it runs, not how fast",
               options.quick);
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
