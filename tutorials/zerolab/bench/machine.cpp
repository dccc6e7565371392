// zerolab bench machine: CPU limits, on one core and on all cores together; and the disk.

#include "tutorials/zerolab/run/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/io/disk.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/described_machine.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/progress.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

// [B] of level 2 or 3; 0 if the system does not say. index2 is the L2 cache.
int64_t cache_bytes(int level) {
  int64_t kib = 0;
  std::ifstream(str("/sys/devices/system/cpu/cpu0/cache/index", level, "/size")) >> kib;  // "1024K"
  return kib * 1024;
}

Json limit_json(const std::string& what, const std::string& name, const char* unit,
                const Json& bytes, int64_t cores, const Spread& spread) {
  Json row{{"what", what}, {"name", name}, {"unit", unit}, {"over_bytes", bytes}, {"cores", cores}};
  row.update(Json(spread));
  return row;
}

Json measure_limits(const MachineOptions& options) {
  struct Limit {
    const char *what, *name, *unit;
    Json bytes;                  // [B] of data on all cores; null: registers only
    std::vector<int64_t> cores;  // one after the other
    std::function<Spread(const CoreRun&)> measure;
  };
  const int64_t array = options.array;
  const bool several = options.cores.cores > 1;
  const std::vector<int64_t> two(several, 2);
  std::vector<int64_t> both{1};
  if (several) both.push_back(options.cores.cores);
  const Limit limits[] = {
      {"multiply_add", "multiply-adds", "FLOP/s", nullptr, both, multiply_add_rate},
      {"product", "our matmul", "FLOP/s", 3 * 4 * kCpuMatrix * kCpuMatrix, both,
       [](const CoreRun& run) { return matmul_rate(kCpuMatrix, run); }},
      {"copy_memory", "copy in memory", "B/s", 2 * array, both,
       [=](const CoreRun& run) { return memory_rate(array, run); }},
      {"latency_spinning", "latency to a spinning thread", "s", nullptr, two,
       [&](const CoreRun& run) { return latency(run.samples, options.quick ? 200 : 10'000); }}};
  Progress progress(3 * std::ssize(both) + std::ssize(two) + options.disk_passes(), options.quiet);
  Json rows = Json::array(), method;
  for (const Limit& limit : limits)
    for (CoreRun run = options.cores; const int64_t n : limit.cores) {
      run.cores = n;
      progress.item(str(limit.name, ", ", plural(n, "core")));
      const Spread spread = limit.measure(run);
      if (spread.max > 0)
        rows.push_back(limit_json(limit.what, limit.name, limit.unit, limit.bytes, n, spread));
    }
  if (!options.folder.empty()) {
    const DiskRates rates = disk_rates(options.folder, options.disk_file(), options.disk_samples(),
                                       [&](const std::string& pass) { progress.item(pass); });
    method = rates.method;
    for (const auto& [what, rate] : {std::pair("write", rates.write), {"read", rates.read}})
      rows.push_back(
          limit_json(str("disk_", what), str("disk, ", what), "B/s", options.disk_file(), 1, rate));
  }
  progress.clear();
  return {{"schema", 3},
          {"command", "bench machine"},
          {"ok", true},
          {"device_name", cpu_model()},
          {"kernels", cpu_architecture()},
          {"optimised", optimised_build()},
          {"cores", options.cores.cores},
          {"samples", options.cores.samples},
          {"cache_bytes", {{"L2", cache_bytes(2)}, {"L3", cache_bytes(3)}}},
          {"page_bytes", sysconf(_SC_PAGESIZE)},
          {"limits", rows},
          {"disk_method", method}};
}

// One of a limit's numbers; with its unit, because limits have several.
template <const char* key>
std::string limit_text(const Json& limit) {
  return limit["unit"] == "s" ? as_seconds(limit[key])
                              : str(as_giga(limit[key]), " G", as_is(limit["unit"]));
}
constexpr char kMedian[] = "median", kMin[] = "min", kMax[] = "max";

void save(const MachineOptions& options) {
  OutputFile file(options.save, "", options.force);
  const std::string text = machine_json(describe_machine(options));
  file.write_text(text);
  file.commit();
  const Json machine = Json::parse(text), &rank = machine["rank"];
  const std::string& name = options.save;
  const Json full{{"machine", machine}},
      part{{"machine", machine["title"]},
           {"a_rank_computes_per_second", rank["f32_flops"]},
           {"a_rank_copies_bytes_per_second", rank["memory_bandwidth"]},
           {"use", str("zerolab plan --model small --ranks ", machine["ranks_per_node"],
                       " --machine ", name.find_first_of("/.") == name.npos ? "./" : "", name)}};
  Json report{{"schema", 1}, {"command", "bench machine"}, {"ok", true}, {"saved", name}};
  report.update(options.json ? full : part);
  print_document(report, options.json);
}

int bench_machine(MachineOptions options) {
  options.cores = {.cores = usable_cores(),
                   .samples = options.quick ? 3 : 15,
                   .seconds = options.quick ? 1e-3 : 0.01};
  // Far larger than the caches, but only a part of the available memory.
  options.array = options.quick ? 4 * kMiB : std::max(256 * kMiB, 4 * cache_bytes(3));
  if (const int64_t available = available_memory(); available > 0)
    options.array = std::clamp(available / 12, kMiB, options.array);
  if (!options.folder.empty()) {
    const int64_t here = free_disk_space(options.folder), file = options.disk_file();
    require_input(file <= here, options.folder, " has ", human_bytes(here), " left, but a file of ",
                  human_bytes(file), " is made");
  }
  require_input(options.device != RunOptions::DeviceWish::reference,
                "a machine has the speed of fast kernels; leave out --device reference");
  if (!options.save.empty()) return save(options), kFine;
  require_input(options.device == RunOptions::DeviceWish::automatic && !options.force,
                "--device and --force are for --save FILE, which is not given");
  print_results(measure_limits(options), options.json, "limits",
                {{"", "/name", as_is},
                 {"cores", "/cores", as_is},
                 {"data", "/over_bytes", as_bytes},
                 {"median", "", limit_text<kMedian>},
                 {"min", "", limit_text<kMin>},
                 {"max", "", limit_text<kMax>}});
  return kFine;
}

constexpr const char* kMachineFooter =
    R"(Each rate is measured on one core, then on all cores at the same time, one thread per core:
fused multiply-adds on registers, the peak FLOP/s that a matmul can approach; zerolab's matmul, on
matrices of each core; copies of large arrays that the cores divide among them, in bytes read plus
written. Latency is half of a round trip of one word between two cores.
--dir also measures a file in DIR, as 'offload_optimizer' to nvme moves it. A file of a virtual
machine says little about an NVMe disk: the host caches it.
--save measures what 'zerolab plan' needs to predict the time of a step here, for ranks that are
threads on the CPU, or GPUs if there are: tutorials/reference/clock.md.

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
  flags.name("--dir", "DIR", "also measure the disk that has this folder", options.folder);
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
