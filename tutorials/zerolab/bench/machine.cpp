// zerolab bench machine: CPU limits, on one core and on all cores together; and the disk.

#include "tutorials/zerolab/run/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/io/disk.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/described_machine.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

// A rate that is measured on one core, then on all cores together.
struct Limit {
  std::string name, key;  // in the table, in JSON
  const char* counts;     // "operations" or "bytes": the rate is of these per second
  int64_t bytes;          // [B] of data on all cores; 0: registers only
  std::function<Spread(const CoreRun&)> measure;
};

std::vector<Limit> all_limits(int64_t array) {
  std::vector<Limit> limits;
  if (has_multiply_add())
    limits.push_back({"multiply-adds", "multiply_add", "operations", 0, multiply_add_rate});
  limits.push_back({str("our matmul, ", kCpuMatrix, " × ", kCpuMatrix), "product", "operations",
                    3 * 4 * kCpuMatrix * kCpuMatrix,
                    [](const CoreRun& run) { return matmul_rate(kCpuMatrix, run); }});
  const auto add = [&](MemoryPass pass, const std::string& name, int arrays) {
    limits.push_back({name + " in memory", name + "_memory", "bytes", arrays * array,
                      [=](const CoreRun& run) { return memory_rate(pass, array, run); }});
  };
  add(MemoryPass::copy, "copy", 2);
  add(MemoryPass::triad, "triad", 3);
  return limits;
}

// [B] of level 2 or 3; 0 if the system does not say. From /sys, because sysconf() may count a
// shared cache once for each core. index2 is the L2 cache.
int64_t cache_bytes(int level) {
  int64_t kib = 0;
  std::ifstream(str("/sys/devices/system/cpu/cpu0/cache/index", level, "/size")) >> kib;  // "1024K"
  const int64_t other = sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
  return kib > 0 ? kib * 1024 : std::max<int64_t>(0, other);
}

Json disk_json(const MachineOptions& options, Progress& progress) {
  if (options.folder.empty()) return nullptr;
  const DiskRates rates = disk_rates(options.folder, options.disk_file(), options.disk_samples(),
                                     [&](const std::string& pass) { progress.item(pass); });
  return {{"folder", options.folder},
          {"method", rates.method},
          {"size_bytes", options.disk_file()},
          {"write_bytes_per_second", rates.write},
          {"read_bytes_per_second", rates.read}};
}

Json measure(const MachineOptions& options) {
  const bool several = options.cores.cores > 1;
  const std::vector<Limit> limits = all_limits(options.array);
  Progress progress(std::ssize(limits) * (several ? 2 : 1) + 2 * several + options.disk_passes(),
                    options.quiet);
  Json rows, latencies = Json::object(), share;
  double peak[2] = {}, matmul[2] = {};  // [FLOP/s] on one core, on all cores
  for (const Limit& limit : limits) {
    Json row{{"what", limit.key},
             {"name", limit.name},
             {"counts", limit.counts},
             {"over_bytes", limit.bytes}};
    Spread rate;
    for (const bool all : {false, true}) {
      CoreRun run = options.cores;
      if (!all) run.cores = 1;
      if (!all || several) {
        progress.item(str(limit.name, ", ", plural(run.cores, "core")));
        rate = limit.measure(run);
      }
      row[all ? "all_cores" : "one_core"] = rate;
      if (limit.key == "product") matmul[all] = rate.median;
      if (limit.bytes == 0) peak[all] = std::max(peak[all], rate.max);
    }
    rows.push_back(row);
  }
  for (const bool sleeping : {false, true}) {
    if (!several) break;
    const std::string how = sleeping ? "sleeping" : "spinning";
    progress.item(str("latency to a ", how, " thread"));
    const int rounds = (sleeping ? 1'000 : 10'000) / (options.quick ? 50 : 1);
    latencies[how] = latency(sleeping, options.cores.samples, rounds);
  }
  const Json disk = disk_json(options, progress);
  progress.clear();
  for (const bool all : {false, true})
    share[all ? "all_cores" : "one_core"] =
        peak[all] > 0 ? Json(matmul[all] / peak[all]) : Json(nullptr);
  return {{"schema", 2},
          {"command", "bench machine"},
          {"ok", true},
          {"device_name", cpu_model()},
          {"kernels", cpu_architecture()},
          {"optimised", optimised_build()},
          {"cores", options.cores.cores},
          {"samples", options.cores.samples},
          {"array_bytes", options.array},
          {"cache_bytes", {{"L2", cache_bytes(2)}, {"L3", cache_bytes(3)}}},
          {"page_bytes", sysconf(_SC_PAGESIZE)},
          {"operations_per_second", peak[0] > 0 ? Json(peak[0]) : Json(nullptr)},
          {"product_share_of_peak", share},
          {"limits", rows},
          {"hand_over_seconds", latencies},
          {"disk", disk}};
}

std::string machine_text(const Json& report) {
  const auto giga = [](const Json& rate, const char* of) {
    return digits(rate[of].get<double>() / 1e9, 4);
  };
  const auto range = [&](const Json& s) { return giga(s, "min") + "–" + giga(s, "max"); };
  const int cores = report["cores"];
  TextTable table;
  std::vector<std::string> titles = {"", "data", "", "1 core", "min–max"};
  if (cores > 1) titles.insert(titles.end(), {plural(cores, "core"), "min–max", "speedup"});
  table.row(titles);
  for (const Json& limit : report["limits"]) {
    const Json &one = limit["one_core"], &all = limit["all_cores"], &data = limit["over_bytes"];
    std::vector<std::string> row = {limit["name"], data > 0 ? human_bytes(data) : "-",
                                    limit["counts"] == "bytes" ? "GB/s" : "GFLOP/s",
                                    giga(one, "median"), range(one)};
    const double speedup = all["median"].get<double>() / one["median"].get<double>();
    if (cores > 1)
      row.insert(row.end(), {giga(all, "median"), range(all), "× " + digits(speedup, 3)});
    table.row(row);
  }
  std::string tail;
  for (const auto& [where, share] : report["product_share_of_peak"].items())
    if (!share.is_null() && (cores > 1 || where == "one_core"))
      tail += str("Our matmul reaches ", digits(100 * share.get<double>(), 3),
                  " % of the multiply-adds' best sample on ",
                  where == "one_core" ? "one core" : plural(cores, "core"), ".\n");
  for (const auto& [how, seconds] : report["hand_over_seconds"].items())
    tail += str("Latency to a ", how, " thread on another core: ", short_seconds(seconds["median"]),
                " (", short_seconds(seconds["min"]), " to ", short_seconds(seconds["max"]), ").\n");
  if (const Json& disk = report["disk"]; !disk.is_null())
    tail += str("A file of ", human_bytes(disk["size_bytes"]), " in ",
                disk["folder"].get<std::string>(), ", ", disk["method"].get<std::string>(),
                ": written at ", giga(disk["write_bytes_per_second"], "median"), " GB/s (",
                range(disk["write_bytes_per_second"]), "), read at ",
                giga(disk["read_bytes_per_second"], "median"), " GB/s (",
                range(disk["read_bytes_per_second"]), ").\n");
  return str(report["device_name"].get<std::string>(), ", ", plural(cores, "core"),
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
  const std::string file = report["saved"];
  TextTable table;
  table.row({"collective", "ranks", "latency", "bus bandwidth"});
  for (const Json& row : machine.value("collectives", Json::array()))
    table.row({row["collective"], row["ranks"].dump(), short_seconds(row["alpha_seconds"]),
               digits(row["bus_bandwidth"].get<double>() / 1e9, 3) + " GB/s"});
  size_t points = 0;
  for (const Json& kernel : rank["kernels"]) points += kernel["points"].size();
  return str("wrote ", file, ": ", machine["title"].get<std::string>(),
             "\n\na rank: ", digits(rank["f32_flops"].get<double>() / 1e9, 4), " GFLOP/s in fp32, ",
             digits(rank["memory_bandwidth"].get<double>() / 1e9, 3), " GB/s of memory, ",
             short_seconds(rank["launch_seconds"]), " beside each kernel\n", points,
             " times of kernels in training steps\n\n",
             machine.contains("collectives") ? table.text() + "\n" : "",
             "Use it: zerolab plan --model small --ranks ", machine["ranks_per_node"],
             " --machine ", file.find_first_of("/.") == file.npos ? "./" : "", file, "\n");
}

int save(const MachineOptions& options) {
  OutputFile file(options.save, "", options.force);
  note_other_programs(options);
  const std::string machine = machine_json(describe_machine(options));
  file.write_text(machine);
  file.commit();
  print_results(Json{{"schema", 1},
                     {"command", "bench machine"},
                     {"ok", true},
                     {"saved", options.save},
                     {"machine", Json::parse(machine)}},
                options.json, saved_text);
  return 0;
}

int bench_machine(MachineOptions options) {
  const int usable = usable_cores();
  if (options.cores.cores == 0) options.cores.cores = usable;
  require_input(options.cores.cores <= usable, "--cores ", options.cores.cores,
                ": this process may run on ", plural(usable, "core"),
                "; more threads would take turns on them");
  options.cores.seconds = options.quick ? 1e-3 : 0.01;
  // Far larger than the caches, but only a part of the available memory.
  const int64_t available = available_memory(),
                large = options.quick ? 4 * kMiB : std::max(256 * kMiB, 4 * cache_bytes(3));
  if (options.array == 0)
    options.array = available > 0 ? std::clamp(available / 12, kMiB, large) : large;
  require_input(available == 0 || options.array <= available / 4, "--array ",
                human_bytes(options.array), " is needed three times, but only ",
                human_bytes(available), " of memory are available; try less");
  if (!options.folder.empty()) {
    const int64_t here = free_disk_space(options.folder), file = options.disk_file();
    require_input(file <= here, options.folder, " has ", human_bytes(here), " left, but a file of ",
                  human_bytes(file), " is made");
  }
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
  multiply-adds  fused multiply-adds on registers: the peak FLOP/s that a matmul can approach
  our matmul     zerolab's matmul; each core has its own matrices, as a rank has
  copy, triad    b = a and c = a + s·b over large arrays that the cores divide among them; bytes
                 count as in STREAM
Latency is half of a round trip of one word between two cores; a collective pays it several times.
If all cores together reach much less than their number times one core, they share what is measured,
or another program is running.

--dir also measures a file in DIR, as 'offload_optimizer' to nvme moves it. A file of a virtual
machine says little about an NVMe disk: the host caches it.

--save measures what the clock of 'zerolab plan' needs to predict the time of a step here: kernels
in training steps of models of several sizes, on one rank and on as many ranks as cores, in fp32 and
bf16; all_reduce, reduce_scatter and all_gather between 2 … all ranks; memory, and with --dir the
disk. The ranks are threads on the CPU, or the GPUs with --device cuda and where there are GPUs.

Examples:
  zerolab bench machine
  zerolab bench machine --dir /local_nvme --json > limits.json
  zerolab bench machine --save ./here.json && zerolab plan --model small --machine ./here.json

Exit codes: 0 fine, 2 usage or no room, 74 FILE cannot be written or the disk failed, 130 Ctrl-C)";

}  // namespace

void add_bench_machine(CLI::App& bench, Invocation& invocation) {
  static MachineOptions options;
  Flags flags(bench, invocation, "machine",
              "CPU limits: peak FLOP/s, memory bandwidth, core-to-core latency; the disk",
              [] { return bench_machine(options); });
  flags.group("What");
  flags.value("--cores", "N", "cores that work at the same time (default all of this process)",
              [](const auto& text) { options.cores.cores = int(read_count(text, 1, 1024)); });
  flags.value("--array", "SIZE",
              "size of each large array (default the larger of 256 MiB and 4 times the L3 cache,\n"
              "but at most a twelfth of the available memory)",
              [](const auto& text) {
                options.array = read_size(text);
                require_input(options.array >= kMiB, "'", text,
                              "' is less than 1 MiB and would stay in a cache");
              });
  flags.name("--dir", "DIR", "also measure the disk that has this folder", options.folder);
  flags.value("--samples", "N", "samples of each limit (default 15; of the disk at most 5)",
              [](const auto& text) { options.cores.samples = int(read_count(text, 1, 1000)); });
  flags.toggle("--quick", "short samples and small arrays: a test that it runs, not how fast",
               options.quick);
  flags.group("A description for 'zerolab plan --machine FILE'");
  flags.name("--save", "FILE", "measure one, which takes about a minute, and write it to FILE",
             options.save);
  flags.toggle("--force", "replace FILE if it exists", options.force);
  add_shared_flags(flags, options);
  flags.footer(kMachineFooter);
}

}  // namespace zl::cli
