// zerolab bench machine: describes this machine for the clock of 'zerolab plan --machine FILE'
// (stages/predict/clock/machine.h), all of it measured.

#include "stages/predict/clock/machine.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "stages/predict/clock/clock_plan.h"
#include "stages/predict/clock/collective_time.h"
#include "stages/predict/clock/kernel_time.h"
#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/io/disk.h"
#include "tutorials/zerolab/bench/collectives.h"
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/bench/timed_backend.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/run/machine.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

// The flags of 'zerolab bench machine'.
struct MachineOptions : RunOptions {
  std::string folder;  // on the disk; "": none is measured
  std::string save;    // the file of the description
  bool quick = false, force = false;
  int64_t disk_file() const { return (quick ? 4 : 64) * kMiB; }  // [B]
};

constexpr int kMostRanks = 64;  // that are threads
constexpr int64_t kWarmUp = 2;  // steps
constexpr Collective kTimed[] = {Collective::all_reduce, Collective::reduce_scatter,
                                 Collective::all_gather};
constexpr double kNoLimit = 1e15;  // [B/s] the bytes of a call make no difference

// A model whose kernels are timed.
struct Size {
  int64_t layers, heads, width, window, vocab, batch;
};
// The smallest first; --quick takes two, only GPUs the last two. Sequences, heads and numbers of
// rows of several lengths, because attention and matmul depend on them, and models whose state is
// larger than a cache.
constexpr Size kSizes[] = {
    {2, 2, 32, 32, 256, 4},      {3, 4, 64, 64, 256, 4},   {2, 2, 64, 32, 256, 1},
    {2, 4, 256, 32, 256, 1},     {2, 8, 512, 64, 1024, 2}, {2, 6, 192, 64, 256, 4},
    {2, 4, 256, 128, 4096, 2},   {2, 4, 128, 256, 256, 2}, {2, 4, 256, 512, 256, 1},
    {4, 4, 128, 128, 256, 8},    {3, 6, 384, 256, 256, 4}, {4, 12, 768, 1024, 50257, 4},
    {2, 16, 2048, 2048, 8192, 2}};

RunSetup setup_of(RunOptions run, const Size& size, Dtype precision, int ranks) {
  run.quiet = true;
  run.source.precision = precision;
  run.n_layer = size.layers, run.n_head = size.heads, run.n_embd = size.width;
  run.block_size = size.window, run.vocab_size = size.vocab;
  RunSetup setup = set_up_run(run, ranks);
  setup.spec.micro_batch = size.batch;
  return setup;
}

// What calls of the same place took together.
struct Calls : KernelTimes::Point {
  double count = 0;
};

class Description {
 public:
  explicit Description(const MachineOptions& options) : options_(options) {}

  Machine measure() {
    progress_.item("peak FLOP/s and memory");
    name_and_limits();
    if (!options_.folder.empty()) progress_.item("disk"), disk();
    for (const Dtype type : types_)
      for (const int ranks : together_) kernels(type, ranks);
    progress_.item("launches");
    launch();
    for (const int ranks : groups_) collectives(ranks);
    progress_.clear();
    return std::move(machine_);
  }

 private:
  // Kernels that are not measured reach these limits. What is not measured of the link, such as a
  // broadcast, is as fast as the slowest of what is.
  void name_and_limits() {
    machine_.name = std::filesystem::path(options_.save).stem();
    machine_.title =
        str(gpu_ ? str(ranks_, " × ") : plural(ranks_, "core") + " of ", device_.name());
    machine_.sources = {str("All numbers: measured by zerolab bench machine --save",
                            options_.quick ? " --quick" : "", ", kernels compiled for ",
                            cpu_architecture())};
    machine_.ranks_per_node = ranks_;
    if (!gpu_) machine_.contention = 1;
    Host& host = machine_.host;
    host.memory_bytes = double(total_memory());
    set_compute_threads(std::min(usable_cores(), kMostComputeThreads));
    host.memory_bandwidth = 2 * copy_rate({}, array()).median;
    set_compute_threads(1);
    rank_.device = device_.kind;
    rank_.memory_bytes = gpu_ ? double(device_.gpus.front().memory) : host.memory_bytes / ranks_;
    rank_.memory_bandwidth =
        gpu_ ? 2 * copy_rate(device_, array()).median : host.memory_bandwidth / ranks_;
    rank_.f32_flops = operation_rate(device_, Dtype::f32);
    rank_.half_flops = operation_rate(device_, Dtype::bf16);
    host.link_bandwidth =
        gpu_ ? copy_rate(device_, array(), true).median : rank_.memory_bandwidth / 2;
    machine_.link = {.kind = gpu_ ? NodeLink::Kind::pcie : NodeLink::Kind::memory,
                     .bandwidth = groups_.empty() ? host.link_bandwidth : kNoLimit,
                     .ring = 1};
  }

  // With zero3, which has the kernels of the other stages too; the second micro-batch adds to
  // gradients. Calls of one place become one point, such as the three directions of a matmul, which
  // are as frequent as each other in a step.
  void kernels(Dtype type, int ranks) {
    std::map<std::pair<std::string, int>, std::map<double, Calls>> all;  // by kernel, shape; place
    for (const Size& size : sizes_) {
      const RunSetup setup = setup_of(options_, size, type, ranks);
      GptTrainingSpec spec = setup.spec;
      spec.engine.stage = StageKind::zero3;
      spec.engine.accumulation = 2;
      spec.steps = kWarmUp + timed_steps_;
      progress_.item(str("kernels in ", precision_name(type), " at width ", size.width, ", ",
                         plural(ranks, "rank")));
      const TimedSteps steps =
          time_kernels(spec, kWarmUp, gpu_ ? TimedBy::device : TimedBy::thread);
      for (const auto& [call, seconds] : steps.calls) {
        const std::string kernel = call.name.substr(0, call.name.find(' '));
        if (call.bytes == 0 || kernel == "upload" || kernel == "download") continue;
        const int shape = shape_of({.kernel = kernel,
                                    .head = int(size.width / size.heads),
                                    .rows = int(size.batch * size.window)});
        const auto operations = double(call.operations), bytes = double(call.bytes),
                   n = double(seconds.size() / steps.seconds.size());
        Calls& calls = all[{kernel, shape}][place_of(kernel, operations, bytes)];
        calls.operations = operations, calls.bytes = bytes, calls.count += n;
        calls.seconds += n * std::max(spread_of(seconds).median, 1e-9);
      }
    }
    for (const auto& [of, places] : all) {
      KernelTimes times{.kernel = of.first, .type = type, .ranks = ranks, .shape = of.second};
      for (const auto& [place, calls] : places)
        times.points.push_back({calls.operations, calls.bytes, calls.seconds / calls.count});
      rank_.kernels.push_back(times);
    }
  }

  // [s] A launch, so that the clock predicts a step of the smallest model as it is measured. On a
  // CPU the rest of such a step is in kernels. On a GPU its kernels are shorter than their
  // launches.
  void launch() {
    const RunSetup setup = setup_of(options_, sizes_.front(), Dtype::f32, 1);
    GptTrainingSpec spec = setup.spec;
    spec.steps = kWarmUp + 20 * timed_steps_;
    std::vector<double> seconds;
    for (const StepRecord& step : run_training(spec).steps)
      if (step.step > kWarmUp) seconds.push_back(step.seconds);
    const double kernels = gpu_ ? 0 : clock_step(setup.spec, machine_).times.seconds;
    rank_.launch = 1;
    const double launches = clock_step(setup.spec, machine_).times.launches;
    rank_.launch = std::max(0.0, spread_of(seconds).quartile - kernels) / launches;
  }

  // Of each size the shortest call counts: other programs can only make calls longer, and a call
  // between two ranks of which one waits for a core takes a hundred times as long as others.
  void collectives(int ranks) {
    const RunSetup setup = setup_of(options_, sizes_.front(), Dtype::f32, ranks);
    std::vector<TimedTrial> trials;
    for (const Collective kind : kTimed)
      for (int64_t bytes = 256; bytes <= (options_.quick ? 1 : 32) * kMiB; bytes *= 4)
        trials.push_back({{kind, bytes / 4 / ranks * ranks, Dtype::f32}});
    progress_.item(str("collectives on ", ranks, " ranks"));
    time_trials(trials, setup.spec,
                {.rounds = options_.quick ? 2 : 8, .calls = timed_steps_, .warm_up = 2});
    for (const Collective kind : kTimed) {
      std::vector<TimedCall> calls;
      for (const TimedTrial& t : trials)
        if (t.spec.kind == kind) calls.push_back({t.bytes(), std::ranges::min(t.seconds)});
      CollectiveTerms terms = fit_terms(calls, kind, ranks);
      if (terms.bus == 0) terms.bus = kNoLimit;
      machine_.link.bandwidth = std::min(machine_.link.bandwidth, terms.bus);
      machine_.collectives.push_back({.collective = kind, .ranks = ranks, .terms = terms});
    }
  }

  void disk() {
    machine_.host.disk_bytes = double(free_disk_space(options_.folder));
    const DiskRates rates = disk_rates(options_.folder, options_.disk_file());
    machine_.sources.push_back(str("The disk: that of ", options_.folder, ", ", rates.method));
    machine_.host.disk_write = rates.write, machine_.host.disk_read = rates.read;
  }

  // [B] of each large array: far larger than the caches, but only a part of the available memory.
  int64_t array() const {
    if (options_.quick) return 4 * kMiB;
    const int64_t available = available_memory(), l3 = sysconf(_SC_LEVEL3_CACHE_SIZE),
                  large = std::max(256 * kMiB, 4 * l3);
    return available > 0 ? std::clamp(available / 12, kMiB, large) : large;
  }
  std::vector<int> groups() const {
    std::vector<int> all;
    for (int n = 2; n < ranks_; n = n < 8 ? n + 1 : 2 * n) all.push_back(n);
    if (ranks_ > 1) all.push_back(ranks_);
    return all;
  }

  const MachineOptions& options_;
  const DeviceChoice device_ = choose_device(options_, Dtype::f32, kMostRanks);
  const bool gpu_ = device_.on_gpus();
  const int ranks_ = gpu_ ? int(device_.gpus.size())  // of the node
                          : std::min(usable_cores(), kMostRanks);
  const int64_t timed_steps_ = options_.quick ? 2 : 5;
  const std::span<const Size> sizes_ =
      std::span(kSizes).first(options_.quick ? 2 : std::size(kSizes) - (gpu_ ? 0 : 2));
  const std::vector<Dtype> types_ =
      options_.quick ? std::vector{Dtype::f32} : std::vector{Dtype::f32, Dtype::bf16};
  // Ranks that compute at the same time; ranks between which collectives are timed.
  const std::vector<int> together_ = gpu_ || ranks_ == 1 ? std::vector{1} : std::vector{1, ranks_},
                         groups_ = groups();
  Progress progress_{2 + !options_.folder.empty() +
                         std::ssize(types_) * std::ssize(together_) * std::ssize(sizes_) +
                         std::ssize(groups_),
                     options_.quiet};
  Machine machine_;
  RankMachine& rank_ = machine_.rank;
};

int bench_machine(MachineOptions options) {
  require_input(options.device != RunOptions::DeviceWish::reference,
                "a machine has the speed of fast kernels; leave out --device reference");
  if (!options.folder.empty()) {
    const int64_t here = free_disk_space(options.folder), file = options.disk_file();
    require_input(file <= here, options.folder, " has ", human_bytes(here), " left, but a file of ",
                  human_bytes(file), " is made");
  }
  const OutputFile file(options.save, "", options.force);
  const Machine machine = Description(options).measure();
  const std::string text = machine_json(machine), &name = options.save;
  file.write_text(text);
  Json report{{"schema", 1},
              {"command", "bench machine"},
              {"ok", true},
              {"saved", name},
              {"title", machine.title},
              {"a_rank_computes_per_second", machine.rank.f32_flops},
              {"a_rank_copies_bytes_per_second", machine.rank.memory_bandwidth},
              {"sources", machine.sources},
              {"use", str("zerolab plan --model small --ranks ", machine.ranks_per_node,
                          " --machine ", name.find_first_of("/.") == name.npos ? "./" : "", name)}};
  if (options.json) report["machine"] = Json::parse(text);
  print_document(report, options.json);
  return kFine;
}

constexpr const char* kMachineFooter =
    R"(Measures what 'zerolab plan' needs to predict the time of a step here, for ranks that are
threads on the CPU, or GPUs if there are: peak FLOP/s, memory bandwidth, each kernel of a step in
several sizes, collectives and launches: tutorials/reference/clock.md. It takes about a minute.
--dir also measures a file in DIR, as 'offload_optimizer' to nvme moves it. A file of a virtual
machine says little about an NVMe disk: the host caches it.

  zerolab bench machine --save ./here.json && zerolab plan --model small --machine ./here.json

Exit codes: 0 fine, 2 usage, 74 FILE cannot be written or the disk failed, 130 Ctrl-C)";

}  // namespace

void add_bench_machine(CLI::App& bench, Invocation& invocation) {
  static MachineOptions options;
  Flags flags(bench, invocation, "machine",
              "describe this machine, so that plan predicts the seconds of a step on it",
              [] { return bench_machine(options); });
  flags.group("What");
  flags.name("--save", "FILE", "the description, for 'zerolab plan --machine FILE'", options.save);
  flags.toggle("--force", "replace FILE if it exists", options.force);
  flags.name("--dir", "DIR", "also measure the disk that has this folder", options.folder);
  flags.toggle("--quick", "short samples and small arrays: a test that it runs, not how fast",
               options.quick);
  flags.required("--save");
  add_shared_flags(flags, options);
  flags.footer(kMachineFooter);
}

}  // namespace zl::cli
