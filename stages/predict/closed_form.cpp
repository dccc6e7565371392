#include "stages/predict/closed_form.h"

#include <algorithm>
#include <numeric>

#include "optim/swapped_state.h"
#include "stages/predict/peaks.h"
#include "stages/steady_state.h"
#include "stages/variants/groups.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

// Of a stage that keeps a parameter shard. False: full parameters stay from forward to backward.
bool gathers_for_backward(const StageFile& stage) {
  return std::ranges::count(stage.calls, Per::backward, &UnitCall::per) > 0;
}

// Whether a stage sends what a purpose names in fewer bits than it has.
bool quantised(const StageFile& stage, Purpose purpose) {
  return std::ranges::any_of(
      stage.calls, [&](const UnitCall& call) { return call.purpose == purpose && call.bits > 0; });
}

SteadyInput steady_input(const PredictionInput& in) { return {in.options, in.ranks, in.units}; }

// Whether a reduction takes a copy of the gradient in another type. A full gradient that would be
// freed after the reduction is then freed when it is issued. Quantised codes are no such copy.
bool converts(const PredictionInput& in) {
  const Options& o = in.options;
  if (quantised(file_of(o.stage), Purpose::gradient)) return false;
  return communication_type(o) != (reduces_every_micro_batch(o) ? o.precision : gradient_type(o));
}

// ---- what a rank moves -------------------------------------------------------------------------

// Where a rank's optimizer computes, also with state on disk; its gradient shards or gradients; its
// parameter shards or parameters.
Pool optimizer_pool(const Options& o) { return offloads_optimizer(o) ? Pool::host : Pool::device; }
Pool gradient_pool(const Options& o) {
  return shards_gradient(o.stage) ? optimizer_pool(o) : Pool::device;
}
Pool parameter_pool(const Options& o) {
  if (!offloads_parameter(o)) return Pool::device;
  return o.offload_param == OffloadDevice::nvme ? Pool::disk : Pool::host;
}

// Whether a rank's optimizer state is on disk.
bool is_swapped(const PredictionInput& in) {
  return offloads_optimizer(in.options) && in.options.offload_optimizer == OffloadDevice::nvme &&
         in.optimizer().state + in.optimizer().master > 0;
}

// Adds moves of this rank's shard of units [first, last), `bytes` per element.
void add_shards(MoveLog& log, Move move, const PredictionInput& in, int64_t bytes, size_t first = 0,
                size_t last = SIZE_MAX) {
  for (size_t i = first; i < last && i < in.units.size(); ++i)
    log.add(move, in.units[i] / in.shards() * bytes);
}

Move move_between(Pool from, Pool to) {
  return to == Pool::disk     ? Move::disk_write
         : from == Pool::disk ? Move::disk_read
         : to == Pool::device ? Move::host_to_device
                              : Move::device_to_host;
}

// Forward gathers every unit. Backward gathers the blocks that did not stay; a secondary
// shard is on the device.
void add_unshards(MoveLog& log, const PredictionInput& in) {
  const int64_t element = size_of(in.options.precision);
  const Move move = move_between(parameter_pool(in.options), Pool::device);
  add_shards(log, move, in, element);
  const StageFile& stage = file_of(in.options.stage);
  if (stage.secondary != Part::none || !gathers_for_backward(stage)) return;
  add_shards(log, move, in, element, 1, first_kept_block(in.units, in.options.overlap));
}

// Adds a move for each chunk of a unit, of n elements together.
void add_chunks(MoveLog& log, Move move, const PredictionInput& in, int64_t n, int64_t bytes,
                int64_t times = 1) {
  const int64_t chunk = is_swapped(in) ? swap_plan(in.options.swap, n).chunk : n;
  for (int64_t at = 0; at < n; at += chunk) log.add(move, std::min(chunk, n - at) * bytes, times);
}

// Each tensor of the state is read and written once, with its padding.
void add_swaps(MoveLog& log, const PredictionInput& in) {
  const int64_t bytes = size_of(compute_type(in.options.precision)),
                tensors = (in.optimizer().state + in.optimizer().master) / bytes;
  for (const int64_t unit : in.units)
    for (const Move move : {Move::disk_read, Move::disk_write})
      add_chunks(log, move, in, swap_plan(in.options.swap, unit / in.shards()).stored, bytes,
                 tensors);
}

void add_update(MoveLog& log, const PredictionInput& in, Dtype gradient) {
  const Pool optimizer = optimizer_pool(in.options), gradients = gradient_pool(in.options),
             parameters = parameter_pool(in.options);
  const auto add = [&](size_t unit, Pool from, Pool to, Dtype type) {
    if (from != to)
      add_chunks(log, move_between(from, to), in, in.units[unit] / in.shards(), size_of(type));
  };
  if (is_swapped(in)) add_swaps(log, in);
  for (size_t i = 0; i < in.units.size(); ++i) {
    // Without master weights an update reads the parameters. With them it only writes them, but
    // for frozen ones, which it leaves as they are.
    if (in.optimizer().master == 0 || (i < in.frozen.size() && in.frozen[i]))
      add(i, parameters, optimizer, in.options.precision);
    add(i, optimizer, parameters, in.options.precision);
    add(i, gradients, optimizer, gradient);
  }
}

// Sets `moves` and `update_moves`.
void add_moves(Prediction& p, const PredictionInput& in) {
  const Options& o = in.options;
  const bool gradient_on_host = gradient_pool(o) == Pool::host;
  const int64_t accumulated = size_of(gradient_type(o)),
                communicated = size_of(communication_type(o));
  for (int64_t a = 0; a < o.accumulation; ++a) {
    for (const int64_t n : in.kept_inputs)  // each kept byte, to the host and back
      for (const Move move : {Move::device_to_host, Move::host_to_device})
        if (o.cpu_checkpointing) p.moves.add(move, n * size_of(o.precision));
    if (offloads_parameter(o)) add_unshards(p.moves, in);
    if (!gradient_on_host) continue;
    if (o.reproducible)  // the sum continues from the shard
      add_shards(p.moves, Move::host_to_device, in, accumulated);
    const bool from_codes = quantised(file_of(o.stage), Purpose::gradient);
    add_shards(p.moves, Move::device_to_host, in, from_codes ? size_of(Dtype::f32) : communicated);
  }
  for (const UnitCall& call : file_of(o.stage).calls) {  // replicas add their shards
    if (!gradient_on_host || call.among != Among::inter || call.per != Per::step) continue;
    add_shards(p.moves, Move::host_to_device, in, accumulated);
    add_shards(p.moves, Move::device_to_host, in, communicated);
  }
  for (MoveLog* log : {&p.moves, &p.update_moves}) add_update(*log, in, gradient_type(o));
}

// ---- peaks -------------------------------------------------------------------------------------

// [n] Of the scales of `rows` rows of n elements.
int64_t scales(int64_t rows, int64_t n) {
  return rows * ((n + UnitCall::kScaleGroup - 1) / UnitCall::kScaleGroup);
}

// [B] What the reduction of a unit takes in zero3_qgz (Passes::reduction): what is sent and what is
// received inside the node, the fp32 sum for each node, what is sent and received between nodes,
// the sum.
std::vector<int64_t> quantized_reduction(const PredictionInput& in, int64_t full) {
  const int64_t n = full / in.ranks, nodes = in.ranks / in.options.ranks_per_node,
                inside = full / 2 + 4 * scales(in.ranks, n),
                between = nodes * n / 2 + 4 * scales(nodes, n), sums = 4 * nodes * n;
  return {2 * inside, -inside,  sums,  -inside,  between, -sums,
          between,    -between, 4 * n, -between, -4 * n};
}

// A collective may need copies in another type, scratch for the shards of the other ranks, and a
// copy of the offloaded shard that its sum continues.
PassPeaks pass_peaks(const PredictionInput& in) {
  const Options& o = in.options;
  const StageFile& stage = file_of(o.stage);
  Passes passes{in.units, o.overlap, o.reduce_bucket_size, converts(in)};
  passes.reduction = [&](int64_t n) -> std::vector<int64_t> {
    if (quantised(stage, Purpose::gradient)) return quantized_reduction(in, n);
    const int64_t shard = n / in.shards();
    int64_t elements = converts(in) ? n : 0;
    if (in.scratch) elements += shard * (in.shards() - 1);
    if (o.reproducible && gradient_pool(o) == Pool::host) elements += shard;
    const int64_t bytes = elements * size_of(communication_type(o));
    return {bytes, -bytes};
  };
  if (quantised(stage, Purpose::parameter))
    passes.gather = [&](int64_t n) { return n + 4 * scales(in.ranks, n / in.ranks); };
  return peaks_of(passes);
}

// [B] The most that collectives need beside the tensors of the model: what is in flight for one
// micro-batch, the sum of one unit's shard over replicas, or the doubles of the norm or of the
// loss.
int64_t peak_communication(const PredictionInput& in, const PassPeaks& peaks,
                           const CommunicationLog& traffic) {
  const Options& o = in.options;
  int64_t most = peaks.in_flight;
  for (const UnitCall& call : file_of(o.stage).calls) {
    if (call.among != Among::inter || call.bits > 0) continue;
    const bool copied = gradient_pool(o) == Pool::host || communication_type(o) != gradient_type(o);
    for (const int64_t full : in.units) {
      const int64_t shard = full / o.ranks_per_node,
                    scratch = in.scratch ? shard / o.replicas * (o.replicas - 1) : 0;
      most = std::max(most, ((copied ? shard : 0) + scratch) * size_of(communication_type(o)));
    }
  }
  for (const auto& [key, t] : traffic.rows())
    if (key.purpose == Purpose::norm || key.purpose == Purpose::loss)
      most = std::max(most, t.elements * 8);
  return most;
}

// [n] The most that full gradients take beside what is kept.
int64_t peak_full_gradients(const PredictionInput& in, const PassPeaks& peaks) {
  const Options& o = in.options;
  if (reduces_every_micro_batch(o)) return peaks.gradients;
  if (gradient_type(o) == o.precision) return 0;
  // One buffer per unit, added as soon as it is complete.
  int64_t block = 0;
  for (size_t i = 1; i < in.units.size(); ++i) block = std::max(block, in.units[i]);
  return in.units[0] + block;
}

// [n] Full parameters that a rank has beside its shards. A stage that makes no call of its own for
// backward keeps them from forward on.
int64_t peak_unsharded(const PredictionInput& in, const PassPeaks& peaks) {
  const StageFile& stage = file_of(in.options.stage);
  if (stage.parameter == Part::full) return 0;
  return gathers_for_backward(stage) ? peaks.parameters : steady_input(in).elements(Part::full);
}

}  // namespace

std::vector<int64_t> padded_unit_sizes(const std::vector<Unit>& units, int ranks,
                                       const Options& options) {
  const int64_t shard_multiple = options.reproducible ? kernel::kSquaresBlock : 16;
  std::vector<int64_t> sizes;
  for (const Unit& u : units) {
    int64_t n = 0;
    for (const Parameter* p : u.parameters) n += round_up(p->numel(), 16);
    sizes.push_back(round_up(n, shard_multiple * ranks));
  }
  return sizes;
}

bool has_closed_formula(MemoryUse use, Pool pool) {
  if (use == MemoryUse::activation) return pool == Pool::host;
  return use != MemoryUse::workspace;
}

Prediction predict(PredictionInput in) {
  in.options = with_groups(in.options, in.ranks);
  const Options& o = in.options;
  const SteadyInput steady = steady_input(in);
  const SteadyBytes kept = steady_bytes(steady);
  const PassPeaks peaks = pass_peaks(in);
  const int64_t secondary = steady.elements(file_of(o.stage).secondary) * size_of(o.precision);
  Prediction p;
  const auto add = [&](Pool pool, MemoryUse use, int64_t rest, int64_t more_at_peak = 0) {
    Prediction::PoolBytes& to = pool == Pool::device ? p.device
                                : pool == Pool::host ? p.host
                                                     : p.disk;
    to.rest[size_t(use)] += rest;
    to.peak[size_t(use)] += rest + more_at_peak;
  };
  add(parameter_pool(o), MemoryUse::parameter, kept.parameter - secondary);
  add(Pool::device, MemoryUse::parameter, secondary,
      peak_unsharded(in, peaks) * size_of(o.precision));
  add(gradient_pool(o), MemoryUse::gradient, kept.gradient);
  add(Pool::device, MemoryUse::gradient, 0, peak_full_gradients(in, peaks) * size_of(o.precision));
  // [n] On disk (Swap) shards are rounded up to blocks of 1,024 elements, and an update holds up to
  // three chunks of sub_group_size, rounded likewise.
  int64_t stored = 0, in_memory = 0;
  for (const int64_t unit : in.units) {
    if (unit == 0 || !is_swapped(in)) continue;
    const SwapPlan plan = swap_plan(o.swap, unit / in.shards());
    stored += plan.stored;
    in_memory = std::max(in_memory, plan.buffers * plan.chunk);
  }
  for (const auto& [use, bytes] : {std::pair{MemoryUse::optimizer_state, in.optimizer().state},
                                   {MemoryUse::master_weights, in.optimizer().master}}) {
    add(optimizer_pool(o), use, is_swapped(in) ? 0 : kept.optimizer_elements * bytes,
        in_memory * bytes);
    add(Pool::disk, use, stored * bytes);
  }
  p.traffic = steady_traffic(steady);
  add(Pool::device, MemoryUse::communication, 0, peak_communication(in, peaks, p.traffic));
  if (o.cpu_checkpointing) add(Pool::host, MemoryUse::activation, 0, kept_bytes(in));
  add_moves(p, in);
  return p;
}

int64_t kept_bytes(const PredictionInput& in) {
  return std::accumulate(in.kept_inputs.begin(), in.kept_inputs.end(), int64_t(0)) *
         size_of(in.options.precision);
}

CheckpointBytes checkpoint_bytes(PredictionInput in, DeviceKind device) {
  constexpr int64_t kBuffer = 1 << 20;  // [B]
  in.options = with_groups(in.options, in.ranks);
  const Options& o = in.options;
  const int64_t each = 4 + in.optimizer().state;
  const bool master = in.optimizer().master > 0;
  const bool on_disk = is_swapped(in) || (parameter_pool(o) == Pool::disk && !master);
  const bool all_on_host = o.offload_optimizer == OffloadDevice::cpu && shards_optimizer(o.stage) &&
                           (master || offloads_parameter(o));
  return {.disk = each * in.parameters,
          .snapshot = each * steady_input(in).elements(Part::shard),
          .buffer = on_disk || (device != DeviceKind::cpu && !all_on_host) ? kBuffer : 0};
}

ModelStates model_states(StageKind stage, double parameters, int ranks, const ElementBytes& bytes) {
  const double shard = parameters / ranks;
  return {.parameter = double(bytes.parameter) * (shards_parameter(stage) ? shard : parameters),
          .gradient = double(bytes.gradient) * (shards_gradient(stage) ? shard : parameters),
          .optimizer = double(bytes.optimizer.state + bytes.optimizer.master) *
                       (shards_optimizer(stage) ? shard : parameters)};
}

SentElements sent_elements(const Options& o, double parameters, int ranks) {
  const double once = parameters * double(ranks - 1) / ranks, all = once * double(o.accumulation),
               reduced = reduces_every_micro_batch(o) ? all : once;
  if (!shards_optimizer(o.stage)) return {2 * reduced, 0};  // reduce-scatter, all-gather
  return {reduced, shards_parameter(o.stage) ? 2 * all : once};
}

}  // namespace zl
