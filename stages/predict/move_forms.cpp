#include "stages/predict/move_forms.h"

#include <algorithm>

#include "optim/swapped_state.h"
#include "stages/predict/peaks.h"

namespace zl {
namespace {

// Adds moves of this rank's shard of units [first, last), `bytes` per element.
void add_shards(MoveLog& log, Move move, const PredictionInput& in, int64_t bytes, size_t first,
                size_t last) {
  for (size_t i = first; i < last; ++i) log.add(move, in.units[i] / in.shards() * bytes);
}

void add_shards(MoveLog& log, Move move, const PredictionInput& in, int64_t bytes) {
  add_shards(log, move, in, bytes, 0, in.units.size());
}

// Forward gathers every unit. Backward gathers the blocks that did not stay; a secondary
// shard is on the device.
void add_unshards(MoveLog& log, const PredictionInput& in) {
  const int64_t element = size_of(in.options.precision);
  const Move move =
      in.options.offload_param == OffloadDevice::nvme ? Move::disk_read : Move::host_to_device;
  add_shards(log, move, in, element);
  const StageFile& stage = file_of(in.options.stage);
  if (stage.secondary != Part::none || !stage.gathers_for_backward()) return;
  add_shards(log, move, in, element, 1, first_reused_block(in.units, in.options.overlap));
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

Move move_between(Pool from, Pool to) {
  return to == Pool::disk     ? Move::disk_write
         : from == Pool::disk ? Move::disk_read
         : to == Pool::device ? Move::host_to_device
                              : Move::device_to_host;
}

Pool parameter_pool(const PredictionInput& in) {
  if (!offloads_parameter(in.options)) return Pool::device;
  return in.options.offload_param == OffloadDevice::nvme ? Pool::disk : Pool::host;
}

// The optimizer computes on the device or, offloaded, on the host, also with state on disk.
void add_update(MoveLog& log, const PredictionInput& in, Dtype gradient) {
  const Pool optimizer = offloads_optimizer(in.options) ? Pool::host : Pool::device,
             gradients = shards_gradient(in.options.stage) ? optimizer : Pool::device,
             parameters = parameter_pool(in);
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

}  // namespace

bool is_swapped(const PredictionInput& in) {
  return offloads_optimizer(in.options) && in.options.offload_optimizer == OffloadDevice::nvme &&
         in.optimizer().state + in.optimizer().master > 0;
}

SwappedElements swapped_elements(const PredictionInput& in) {
  SwappedElements sum;
  for (const int64_t unit : in.units) {
    if (unit == 0) continue;
    const SwapPlan plan = swap_plan(in.options.swap, unit / in.shards());
    sum.stored += plan.stored;
    sum.in_memory = std::max(sum.in_memory, plan.buffers * plan.chunk);
  }
  return sum;
}

void add_moves(Prediction& p, const PredictionInput& in) {
  const Options& o = in.options;
  const bool gradient_on_host = offloads_optimizer(o) && shards_gradient(o.stage);
  const int64_t accumulated = size_of(gradient_type(o)),
                communicated = size_of(communication_type(o));
  for (int64_t a = 0; a < o.accumulation; ++a) {
    if (offloads_parameter(o)) add_unshards(p.moves, in);
    if (!gradient_on_host) continue;
    if (o.reproducible)  // the sum continues from the shard
      add_shards(p.moves, Move::host_to_device, in, accumulated);
    const bool quantised = file_of(o.stage).quantised(Purpose::gradient);
    add_shards(p.moves, Move::device_to_host, in, quantised ? size_of(Dtype::f32) : communicated);
  }
  for (const UnitCall& call : file_of(o.stage).calls) {  // replicas add their shards
    if (!gradient_on_host || call.among != Among::inter || call.per != Per::step) continue;
    add_shards(p.moves, Move::host_to_device, in, accumulated);
    add_shards(p.moves, Move::device_to_host, in, communicated);
  }
  add_update(p.update_moves, in, gradient_type(o));
  p.moves.add(p.update_moves);
}

}  // namespace zl
