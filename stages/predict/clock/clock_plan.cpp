#include "stages/predict/clock/clock_plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "stages/predict/dry_run.h"
#include "stages/variants/groups.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace zl {

double slowest(const Stragglers& stragglers, int ranks) {
  if (stragglers.deviation <= 0) return 1;
  const PhiloxStream stream{stragglers.seed, fnv1a("stragglers")};
  double most = stream.normal(0);
  for (int r = 1; r < ranks; ++r) most = std::max(most, stream.normal(uint64_t(r)));
  return std::exp(stragglers.deviation * most);
}

Shortage shortage(const StepTime& time, const GptTrainingSpec& spec, const Machine& machine) {
  const double ranks = std::min(spec.ranks, machine.ranks_per_node);  // of a node
  const auto exceeds = [&](int64_t bytes, int64_t of_rank, double of_node) {
    return (of_rank > 0 && bytes > of_rank) || (of_node > 0 && double(bytes) * ranks > of_node);
  };
  if (exceeds(time.device_peak, spec.device_memory, 0)) return Shortage::device_memory;
  if (exceeds(time.host_peak, spec.host_memory, machine.host.memory_bytes))
    return Shortage::host_memory;
  const bool has_disk = machine.host.disk_read > 0 && machine.host.disk_write > 0;
  if (time.disk_peak > 0 && (!has_disk || exceeds(time.disk_peak, 0, machine.host.disk_bytes)))
    return Shortage::disk;
  return Shortage::none;
}

const char* name(Shortage shortage) {
  static constexpr const char* names[] = {"nothing", "device memory", "host memory", "disk"};
  return names[size_t(shortage)];
}

void set_overlap(Options& options, bool on) {
  options.overlap = {};
  if (on)  // prefetch until the next unit is there; backward begins with the last unit
    options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 1, .max_reuse_distance = 1};
}

namespace {

// Operations for one token of a step: 6 for each parameter, and 12 * layers * width * window for
// attention, without a discount for the causal mask and without recomputation.
double model_operations_per_token(const GptTrainingSpec& spec) {
  const GptConfig& m = spec.model;
  const int64_t window = spec.window ? spec.window : m.block_size;
  return 6 * double(m.parameters()) + 12 * double(m.layers) * double(m.width) * double(window);
}

// Whether calls run beside kernels. On a CPU a thread carries them out, which needs a second core
// for each rank.
bool calls_in_flight(const TrainingSpec& spec, const Machine& machine) {
  const int ranks = std::min(spec.ranks, machine.ranks_per_node);
  return machine.rank.device != DeviceKind::cpu ||
         (rank_options(spec).lane && 2 * ranks <= machine.ranks_per_node);
}

}  // namespace

StepTime clock_step(const GptTrainingSpec& real, const Machine& machine,
                    const Stragglers& stragglers) {
  constexpr int64_t kMicroBatches = 3;  // the first, one between, and the last
  require_input(real.ranks <= machine.ranks_per_node || machine.network.ports > 0, "the machine ",
                machine.name, " is one node of ", machine.ranks_per_node,
                machine.ranks_per_node == 1 ? " rank" : " ranks",
                " without a network, so it does not say how long a step of ", real.ranks,
                " ranks takes");
  GptTrainingSpec spec = real;
  spec.device_memory = spec.host_memory = 0;
  spec.checkpoint = {};
  const int64_t window = spec.window ? spec.window : spec.model.block_size;
  StepClock clock(machine,
                  {.ranks = spec.ranks,
                   .ranks_in_group = int(with_groups(spec.engine, spec.ranks).ranks_per_node),
                   .type = spec.engine.precision,
                   .head = int(spec.model.width / spec.model.heads),
                   .rows = int(spec.micro_batch * window),
                   .calls_in_flight = calls_in_flight(spec, machine),
                   .slowdown = slowest(stragglers, spec.ranks)});
  const RankReport dry =
      dry_run(spec, 0, kMicroBatches, {}, [&](const Event& event) { clock.see(event); });
  clock.finish();
  StepTime time{.times = clock.step(spec.engine.accumulation),
                .kernels = clock.kernels(),
                .calls = clock.calls(),
                .tokens = spec.engine.accumulation * spec.micro_batch * window,
                .device_peak = dry.rest.peak_total(),
                .host_peak = dry.host.peak_total(),
                .disk_peak = dry.disk.peak_total()};
  const double peak =
      spec.engine.precision == Dtype::f32 ? machine.rank.f32_flops : machine.rank.half_flops;
  if (peak > 0) time.mfu = model_operations_per_token(spec) * time.tokens_per_second() / peak;
  return time;
}

MachineData machine_data(const Machine& machine) {
  if (!machine.rank.kernels.empty()) return MachineData::measured;
  for (const char* kind : {"a100-80gb", "h100-sxm"}) {
    const RankMachine fitted = find_machine(kind).rank;
    const auto key = [](const RankMachine& r) {
      return std::tie(r.half_flops, r.matmul, r.memory, r.streaming, r.attention);
    };
    // Of one kind of GPU, which may have more memory or less.
    if (key(machine.rank) == key(fitted)) return MachineData::fitted;
  }
  return MachineData::data_sheet;
}

ExpectedError expected_step_error(MachineData data, int ranks) {
  constexpr int kFew = 16, kMany = 128, kMostPublished = 2048;
  const size_t column = ranks <= kFew ? 0 : ranks <= kMany ? 1 : 2;
  // Measured kernels: as steps that are calibrated on one step.
  constexpr double kErrors[3][3] = {{0.07, 0.07, 0.09}, {0.22, 0.07, 0.16}, {0.13, 0.13, 0.16}};
  return {.error = kErrors[size_t(data)][column], .order_only = ranks > kMostPublished};
}

}  // namespace zl
