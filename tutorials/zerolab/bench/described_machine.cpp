#include "tutorials/zerolab/bench/described_machine.h"

#include <algorithm>
#include <utility>

#include "stages/predict/clock/clock_plan.h"
#include "tensor/cpu/cpu_backend.h"
#include "tutorials/zerolab/bench/machine_collectives.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/bench/timed_steps.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

constexpr int kMostRanks = 64;  // that are threads
constexpr int64_t kSmallMatrix = 64;

// A model whose kernels are timed.
struct Size {
  int64_t layers, heads, width, window, vocab, batch;
};
// The smallest first; --quick takes two. Sequences, heads and numbers of rows of several lengths,
// because attention and matmul depend on them, and models whose state is larger than a cache.
constexpr Size kCpuSizes[] = {
    {2, 2, 32, 32, 256, 4},    {3, 4, 64, 64, 256, 4},   {2, 2, 64, 32, 256, 1},
    {2, 4, 256, 32, 256, 1},   {2, 8, 512, 64, 1024, 2}, {2, 6, 192, 64, 256, 4},
    {2, 4, 256, 128, 4096, 2}, {2, 4, 128, 256, 256, 2}, {2, 4, 256, 512, 256, 1},
    {4, 4, 128, 128, 256, 8},  {3, 6, 384, 256, 256, 4}};
constexpr Size kGpuSizes[] = {{2, 2, 32, 32, 256, 4},
                              {2, 4, 64, 64, 256, 4},
                              {4, 4, 256, 256, 256, 8},
                              {4, 12, 768, 1024, 50257, 4},
                              {2, 16, 2048, 2048, 8192, 2}};

RunSetup setup_of(const DescribeOptions& options, const Size& size, Dtype precision, int ranks) {
  RunOptions run = options.run;
  run.quiet = true;
  run.ranks = ranks;
  run.source.precision = precision;
  run.n_layer = size.layers, run.n_head = size.heads, run.n_embd = size.width;
  run.block_size = size.window, run.vocab_size = size.vocab;
  RunSetup setup = set_up_run(run, ranks);
  setup.spec.micro_batch = size.batch;
  return setup;
}

// The share of `peak` per second that each point of a kernel reaches, by its size. A point that
// took less time than a smaller one is left out.
std::vector<Efficiency> shares(const RankMachine& rank, const char* kernel, Dtype type,
                               double KernelTimes::Point::*amount, double peak) {
  std::vector<Efficiency> rows;
  double longest = 0;  // [s]
  for (const KernelTimes& times : rank.kernels) {
    if (times.kernel != kernel || times.type != type || times.ranks != 1) continue;
    for (const KernelTimes::Point& p : times.points)
      if (p.*amount >= 1 && p.seconds >= longest &&
          (rows.empty() || p.*amount > rows.back().size)) {
        rows.push_back({p.*amount, std::clamp(p.*amount / p.seconds / peak, 1e-3, 1.0)});
        longest = p.seconds;
      }
  }
  return rows;
}

class Description {
 public:
  explicit Description(const DescribeOptions& options)
      : options_(options),
        device_(choose_device(options.run, Dtype::f32, kMostRanks)),
        gpu_(device_.on_gpus()),
        ranks_(gpu_ ? int(device_.gpus.size()) : std::min(options.cores, kMostRanks)),
        count_(options.quick ? StepCount{2, 2} : StepCount{}),
        collectives_(options.quick ? CollectiveSizes{kMiB, 2, 2} : CollectiveSizes()),
        sizes_(gpu_ ? std::vector<Size>(std::begin(kGpuSizes), std::end(kGpuSizes))
                    : std::vector<Size>(std::begin(kCpuSizes), std::end(kCpuSizes))) {
    if (options.quick) sizes_.resize(2);
  }

  Machine measure() {
    Progress progress(items(), options_.run.quiet);
    begin_ = [&](const std::string& what) { progress.item(what); };
    names();
    begin_("peak FLOP/s");
    peaks();
    begin_("memory");
    memory();
    for (const Dtype type : types()) {
      kernels(type, 1);
      if (!gpu_ && ranks_ > 1) kernels(type, ranks_);
    }
    launch();
    shares_of_peaks();
    for (const int ranks : rank_counts()) collectives(ranks);
    link();
    progress.clear();
    return std::move(machine_);
  }

 private:
  RankMachine& rank() { return machine_.rank; }
  std::vector<Dtype> types() const {
    return options_.quick ? std::vector{Dtype::f32} : std::vector{Dtype::f32, Dtype::bf16};
  }
  std::vector<int> rank_counts() const {
    std::vector<int> all;
    for (int n = 2; n <= ranks_; n = n < 8 ? n + 1 : 2 * n) all.push_back(n);
    if (ranks_ > 1 && all.back() != ranks_) all.push_back(ranks_);
    return all;
  }
  int64_t items() const {
    const int64_t runs = !gpu_ && ranks_ > 1 ? 2 : 1;
    return 3 + std::ssize(types()) * runs * std::ssize(sizes_) * count_.all() +
           std::ssize(rank_counts()) * timed_sizes(collectives_);
  }

  void names() {
    machine_.name = options_.name;
    machine_.title = str(ranks_,
                         gpu_          ? " × "
                         : ranks_ == 1 ? " core of "
                                       : " cores of ",
                         device_.name());
    machine_.sources = {str("All numbers: measured by zerolab bench machine --save",
                            options_.quick ? " --quick" : "", ", kernels compiled for ",
                            cpu_architecture())};
    machine_.ranks_per_node = ranks_;
    if (!gpu_) machine_.contention = 1;
    rank().device = device_.kind;
    rank().memory_bytes =
        gpu_ ? double(device_.gpus.front().memory) : double(total_memory()) / ranks_;
    machine_.host.memory_bytes = double(total_memory());
  }

  // On a CPU bf16 and fp16 are computed in fp32.
  void peaks() {
    Workbench bench(device_);
    rank().f32_flops = bench.operation_rate(Dtype::f32);
    rank().half_flops =
        gpu_ ? bench.operation_rate(Dtype::bf16) : bench.matmul_rate(kCpuMatrix, Dtype::bf16);
  }

  // A copy moves each byte twice: it is read, and written.
  void memory() {
    const CoreRun all{options_.cores, options_.samples, options_.quick ? 1e-3 : 0.01};
    Host& host = machine_.host;
    host.memory_bandwidth = memory_rate(MemoryPass::copy, options_.array, all).median;
    rank().memory_bandwidth = host.memory_bandwidth / ranks_;
    host.link_bandwidth = rank().memory_bandwidth / 2;
    if (!gpu_) return;
    Workbench bench(device_);
    const std::unique_ptr<Backend> pinned = make_pinned_backend();
    Memory pinned_memory({DeviceKind::cpu}, *pinned, bench.memory().events(), {.pool = Pool::host});
    rank().memory_bandwidth = 2 * copy_rate(bench, bench.memory(), options_.quick ? 1 : 512);
    host.link_bandwidth = copy_rate(bench, pinned_memory, options_.quick ? 1 : 64);
  }

  // [B/s] from there to the device.
  double copy_rate(Workbench& bench, Memory& from, int64_t mebibytes) {
    const int64_t elements = mebibytes * kMiB / 4;
    const Tensor there = Tensor::zeros(from, MemoryUse::workspace, {elements}),
                 here = Tensor::zeros(bench.memory(), MemoryUse::workspace, {elements});
    const auto copy = [&] { kernel::copy(there, here); };
    return double(here.bytes()) / bench.time(copy, options_.samples).median;
  }

  void kernels(Dtype type, int ranks) {
    KernelPoints points;
    for (const Size& size : sizes_) {
      const RunSetup setup = setup_of(options_, size, type, ranks);
      const std::string what = str("kernels in ", precision_name(type), " at width ", size.width,
                                   ", ", ranks, ranks == 1 ? " rank" : " ranks");
      points.add(time_kernels(setup, count_, [&] { begin_(what); }), int(size.width / size.heads),
                 int(size.batch * size.window));
    }
    for (KernelTimes& times : points.times(type, ranks)) rank().kernels.push_back(std::move(times));
  }

  // [s] A launch, so that the clock predicts a step of the smallest model as it is measured. On a
  // CPU the rest of such a step is in kernels. On a GPU its kernels are shorter than their
  // launches.
  void launch() {
    const RunSetup setup = setup_of(options_, sizes_.front(), Dtype::f32, 1);
    begin_("launches");
    const double seconds = time_step(setup, {.timed = 20 * count_.timed}, [] {});
    rank().launch = 1;
    const double launches = clock_step(setup.spec, machine_).times.launches;
    rank().launch = 0;
    const double kernels = gpu_ ? 0 : clock_step(setup.spec, machine_).times.seconds;
    rank().launch = std::max(0.0, seconds - kernels) / launches;
  }

  // For kernels and precisions that are not measured.
  void shares_of_peaks() {
    const Dtype type = gpu_ && !options_.quick ? Dtype::bf16 : Dtype::f32;
    const double peak = type == Dtype::f32 ? rank().f32_flops : rank().half_flops;
    rank().matmul = shares(rank(), "matmul", type, &KernelTimes::Point::operations, peak);
    rank().memory =
        shares(rank(), "add", type, &KernelTimes::Point::bytes, rank().memory_bandwidth);
    rank().streaming =
        shares(rank(), "adamw", type, &KernelTimes::Point::bytes, rank().memory_bandwidth);
    rank().attention = 0;
    for (const Efficiency& row :
         shares(rank(), "attention", type, &KernelTimes::Point::operations, peak))
      rank().attention = std::max(rank().attention, row.share);
  }

  void collectives(int ranks) {
    const RunSetup setup = setup_of(options_, sizes_.front(), Dtype::f32, ranks);
    for (const CollectiveRow& row : time_collectives(setup.spec, collectives_, begin_))
      machine_.collectives.push_back(row);
  }

  // What is not measured, such as a broadcast, is as fast as the slowest of what is.
  void link() {
    machine_.link = {.kind = gpu_ ? NodeLink::Kind::pcie : NodeLink::Kind::memory,
                     .bandwidth = machine_.host.link_bandwidth,
                     .ring = 1};
    for (const CollectiveRow& row : machine_.collectives)
      if (&row == &machine_.collectives.front() || row.terms.bus < machine_.link.bandwidth)
        machine_.link.bandwidth = row.terms.bus;
  }

  const DescribeOptions options_;
  const DeviceChoice device_;
  const bool gpu_;
  const int ranks_;  // of the node
  const StepCount count_;
  const CollectiveSizes collectives_;
  std::vector<Size> sizes_;
  std::function<void(const std::string&)> begin_;  // called when a measurement begins
  Machine machine_;
};

}  // namespace

Machine describe_machine(const DescribeOptions& options) { return Description(options).measure(); }

}  // namespace zl::cli
