// zerolab bench machine: CPU limits, on one core and on all cores together.

#include "tutorials/zerolab/run/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/described_machine.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct MachineOptions : RunOptions {
  std::optional<int> cores;
  std::optional<int64_t> array;  // [B]
  int samples = 15;
  bool quick = false, force = false;
  std::string save;  // the file of the description; "": none
};

// A rate that is measured on one core, then on all cores together.
struct Limit {
  std::string name, key;  // in the table, in JSON
  const char* counts;     // "operations" or "bytes": the rate is of these per second
  int64_t bytes;          // [B] of data on all cores; 0: registers only
  std::function<Spread(const CoreRun&)> measure;
};

// [B] Far larger than the caches, but only a part of the available memory.
int64_t array_size(const MachineOptions& options) {
  if (options.array) return *options.array;
  if (options.quick) return 4 * kMiB;
  const int64_t wanted = std::clamp(8 * cache_bytes(3), 64 * kMiB, 512 * kMiB),
                available = available_memory();
  return available > 0 ? std::clamp(available / 12, kMiB, wanted) : wanted;
}

std::vector<Limit> all_limits(int64_t array) {
  std::vector<Limit> limits;
  for (const MultiplyAddLoop& loop : multiply_add_loops())
    limits.push_back({str("multiply-adds, ", loop.name), loop.key, "operations", 0,
                      [=](const CoreRun& run) { return multiply_add_rate(loop, run); }});
  limits.push_back({str("our matmul, ", kCpuMatrix, " × ", kCpuMatrix), "product", "operations",
                    3 * 4 * kCpuMatrix * kCpuMatrix,
                    [](const CoreRun& run) { return matmul_rate(kCpuMatrix, run); }});
  const auto add = [&](MemoryPass pass, const std::string& where, int64_t size) {
    limits.push_back({str(name(pass), " in ", where), str(name(pass), "_", where), "bytes",
                      size * arrays_of(pass), [=](const CoreRun& run) {
                        return memory_rate(pass, where == "L2" ? size * run.cores : size, run);
                      }});
  };
  for (const MemoryPass pass : {MemoryPass::copy, MemoryPass::triad, MemoryPass::read})
    add(pass, "memory", array);
  // Three arrays fill three quarters of each core's L2 cache, or three eighths of the shared L3.
  if (const int64_t l2 = cache_bytes(2); l2 > 0) add(MemoryPass::triad, "L2", l2 / 4);
  if (const int64_t l3 = cache_bytes(3); l3 > 0) add(MemoryPass::triad, "L3", l3 / 8);
  limits.push_back({"first touch of memory", "first_touch", "bytes", array / 4,
                    [=](const CoreRun& run) { return first_touch_rate(array / 4, run); }});
  return limits;
}

// "always", "madvise" or "never"; null if the system does not say.
Json huge_pages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; in >> word;)
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  return nullptr;
}

Json measure(const MachineOptions& options) {
  const int cores = options.cores.value_or(usable_cores());
  const int64_t array = array_size(options);
  const bool several = cores > 1;
  const std::vector<Limit> limits = all_limits(array);
  Progress progress(int64_t(limits.size()) * (several ? 2 : 1) + (several ? 2 : 0), options.quiet);
  Json rows, latency = Json::object(), share;
  double peak[2] = {}, matmul[2] = {};  // [FLOP/s] on one core, on all cores
  for (const Limit& limit : limits) {
    Json row{{"what", limit.key},
             {"name", limit.name},
             {"counts", limit.counts},
             {"over_bytes", limit.bytes}};
    Spread rate;
    for (const bool all : {false, true}) {
      const CoreRun run{all ? cores : 1, options.samples, options.quick ? 1e-3 : 0.01};
      if (!all || several) {
        progress.item(str(limit.name, ", ", run.cores, all ? " cores" : " core"));
        rate = limit.measure(run);
      }
      row[all ? "all_cores" : "one_core"] = rate;
      if (limit.key == "product") matmul[all] = rate.median;
      if (limit.key.starts_with("multiply_add")) peak[all] = std::max(peak[all], rate.max);
    }
    rows.push_back(row);
  }
  if (several) {
    progress.item("latency to a thread that spins");
    latency["spinning"] = spinning_latency(options.samples, options.quick ? 100 : 10'000);
    progress.item("latency to a thread that sleeps");
    latency["sleeping"] = sleeping_latency(options.samples, options.quick ? 20 : 1'000);
  }
  progress.clear();
  for (const bool all : {false, true})
    share[all ? "all_cores" : "one_core"] =
        peak[all] > 0 ? Json(matmul[all] / peak[all]) : Json(nullptr);
  return {{"schema", 1},
          {"command", "bench machine"},
          {"ok", true},
          {"device_name", cpu_model()},
          {"kernels", cpu_architecture()},
          {"optimised", optimised_build()},
          {"cores", cores},
          {"samples", options.samples},
          {"array_bytes", array},
          {"cache_bytes", {{"L2", cache_bytes(2)}, {"L3", cache_bytes(3)}}},
          {"page_bytes", sysconf(_SC_PAGESIZE)},
          {"huge_pages", huge_pages()},
          {"operations_per_second", peak[0] > 0 ? Json(peak[0]) : Json(nullptr)},
          {"product_share_of_peak", share},
          {"limits", rows},
          {"hand_over_seconds", latency}};
}

std::string machine_text(const Json& report) {
  const auto giga = [](double per_second) { return digits(per_second / 1e9, 4); };
  const auto range = [&](const Json& s) { return giga(s["min"]) + "–" + giga(s["max"]); };
  const auto percent = [](double share) { return digits(100 * share, 3) + " %"; };
  const auto bytes = [](const Json& n) { return n > 0 ? human_bytes(n) : "-"; };
  const bool several = report["cores"] > 1;
  const std::string cores = str(report["cores"], several ? " cores" : " core");
  TextTable table;
  std::vector<std::string> titles = {"", "data", "", "1 core", "min–max"};
  if (several) titles.insert(titles.end(), {cores, "min–max", "speedup"});
  table.row(titles);
  for (const Json& limit : report["limits"]) {
    const Json &one = limit["one_core"], &all = limit["all_cores"];
    std::vector<std::string> row = {limit["name"], bytes(limit["over_bytes"]),
                                    limit["counts"] == "bytes" ? "GB/s" : "GFLOP/s",
                                    giga(one["median"]), range(one)};
    const double speedup = all["median"].get<double>() / one["median"].get<double>();
    if (several)
      row.insert(row.end(), {giga(all["median"]), range(all), "× " + digits(speedup, 3)});
    table.row(row);
  }
  const Json &cache = report["cache_bytes"], &share = report["product_share_of_peak"];
  std::string tail;
  if (!share["one_core"].is_null())
    tail = str("Our matmul reaches ", percent(share["one_core"]), " of the multiply-adds' best ",
               "sample on one core, ", percent(share["all_cores"]), " on ", cores, ".\n");
  for (const auto& [how, seconds] : report["hand_over_seconds"].items())
    tail += str("Latency to a ", how, " thread on another core: ", short_seconds(seconds["median"]),
                " (", short_seconds(seconds["min"]), " to ", short_seconds(seconds["max"]), ").\n");
  return str(report["device_name"].get<std::string>(), ", ", cores, "; L2 ", bytes(cache["L2"]),
             " per core, L3 ", bytes(cache["L3"]), "; pages of ", bytes(report["page_bytes"]),
             "\nkernels compiled for ", report["kernels"].get<std::string>(), "; median of ",
             report["samples"], " samples, and their range\n",
             report["optimised"].get<bool>() ? "" : "this is a debug build: its loops are slower\n",
             "\n", table.text(), "\n", tail);
}

// The processes that want a core: those of other programs are the ones before we begin.
void note_other_programs(const MachineOptions& options) {
  double load = 0;
  if (options.quiet || getloadavg(&load, 1) != 1 || load < 0.5) return;
  std::fprintf(stderr,
               "note: other programs keep %s of %d cores busy. Times of kernels hardly change, but "
               "calls between ranks take longer\n",
               digits(load, 2).c_str(), usable_cores());
}

std::string saved_text(const Json& report) {
  const Json &machine = report["machine"], &rank = machine["rank"];
  const std::string file = report["saved"], title = machine["title"];
  const int ranks = machine["ranks_per_node"];
  TextTable table;
  table.row({"collective", "ranks", "latency", "bus bandwidth"});
  for (const Json& row : machine.value("collectives", Json::array()))
    table.row({row["collective"], row["ranks"].dump(), short_seconds(row["alpha_seconds"]),
               digits(row["bus_bandwidth"].get<double>() / 1e9, 3) + " GB/s"});
  size_t points = 0;
  for (const Json& kernel : rank["kernels"]) points += kernel["points"].size();
  return str("wrote ", file, ": ", title,
             "\n\na rank: ", digits(rank["f32_flops"].get<double>() / 1e9, 4), " GFLOP/s in fp32, ",
             digits(rank["memory_bandwidth"].get<double>() / 1e9, 3), " GB/s of memory, ",
             short_seconds(rank["launch_seconds"]), " beside each kernel\n", points,
             " times of kernels in training steps\n\n", ranks > 1 ? table.text() + "\n" : "",
             "Use it: zerolab plan --model small --ranks ", ranks, " --machine ",
             file.find_first_of("/.") == file.npos ? "./" : "", file, "\n");
}

int save(const MachineOptions& options) {
  OutputFile file(options.save, "", options.force);
  note_other_programs(options);
  const std::string stem = std::filesystem::path(options.save).stem();
  const Machine machine = describe_machine({.run = options,
                                            .name = stem.empty() ? "machine" : stem,
                                            .cores = options.cores.value_or(usable_cores()),
                                            .array = array_size(options),
                                            .samples = options.samples,
                                            .quick = options.quick});
  const std::string json = machine_json(machine);
  file.write_text(json);
  file.commit();
  print_results(Json{{"schema", 1},
                     {"command", "bench machine"},
                     {"ok", true},
                     {"saved", options.save},
                     {"machine", Json::parse(json)}},
                options.json, saved_text);
  return 0;
}

int bench_machine(const MachineOptions& options) {
  const int wanted = options.cores.value_or(1), usable = usable_cores();
  require_input(wanted <= usable, "--cores ", wanted, ": this process may run on ", usable,
                usable == 1 ? " core" : " cores", "; more threads would take turns on them");
  const int64_t available = available_memory(), array = array_size(options);
  require_input(available == 0 || array <= available / 4, "--array ", human_bytes(array),
                " is needed three times, but only ", human_bytes(available),
                " of memory are available; try less");
  require_input(options.device != RunOptions::DeviceWish::reference,
                "a machine has the speed of fast kernels; leave out --device reference");
  if (!options.save.empty()) return save(options);
  require_input(options.device == RunOptions::DeviceWish::automatic && !options.force,
                "--device and --force are for --save FILE, which is not given");
  print_results(measure(options), options.json, machine_text);
  return 0;
}

constexpr const char* kMachineFooter =
    R"(Each rate is measured on one core, then on all cores at the same time, one thread per core:
  multiply-adds      fused multiply-adds on registers: the peak FLOP/s that a matmul can approach
  our matmul         zerolab's matmul; each core has its own matrices, as a rank has
  copy, triad, read  b = a, c = a + s·b, and reading alone, over large arrays that the cores divide
                     among them; bytes count as in STREAM. The triad also runs within L2 and L3.
  first touch        writing pages of fresh memory, which the system must find and clear
Latency is half of a round trip of one word between two cores; a collective pays it several times.
If all cores together reach much less than their number times one core, they share what is measured,
or another program is running.

--save measures what the clock of 'zerolab plan' needs to predict the time of a step here: kernels
in training steps of models of several sizes, on one rank and on as many ranks as cores, in fp32 and
bf16; all_reduce, reduce_scatter and all_gather between 2 … all ranks; memory. The ranks are threads
on the CPU, or the GPUs with --device cuda and where there are GPUs. Disks are left out.

Examples:
  zerolab bench machine
  zerolab bench machine --samples 25 --json > limits.json
  zerolab bench machine --save ./here.json && zerolab plan --model small --machine ./here.json
  taskset -c 0-7 zerolab bench machine

Exit codes: 0 fine, 2 usage, 74 FILE cannot be written, 130 Ctrl-C)";

}  // namespace

void add_bench_machine(CLI::App& bench, Invocation& invocation) {
  static MachineOptions options;
  Flags flags(bench, invocation, "machine",
              "CPU limits: peak FLOP/s, memory bandwidth, core-to-core latency",
              [] { return bench_machine(options); });
  flags.group("What");
  flags.value("--cores", "N", "cores that work at the same time (default all of this process)",
              [](const auto& text) { options.cores = int(read_count(text, 1, 1024)); });
  flags.value("--array", "SIZE",
              "size of each large array (default 8 times the L3 cache, 64 MiB to 512 MiB)",
              [](const auto& text) {
                options.array = read_size(text);
                require_input(*options.array >= kMiB, "'", text,
                              "' is less than 1 MiB and would stay in a cache");
              });
  flags.value("--samples", "N", "samples of each limit (default 15)",
              [](const auto& text) { options.samples = int(read_count(text, 1, 1000)); });
  flags.toggle("--quick", "short samples and small arrays: a test that it runs, not how fast",
               options.quick);
  flags.group("A description for 'zerolab plan --machine FILE'");
  flags.name("--save", "FILE", "measure one, which takes about a minute, and write it to FILE",
             options.save);
  add_device_flag(flags, options);
  flags.toggle("--force", "replace FILE if it exists", options.force);
  add_output_flags(flags, options);
  flags.footer(kMachineFooter);
}

}  // namespace zl::cli
