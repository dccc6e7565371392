#include "stages/predict/closed_form.h"

#include <algorithm>
#include <numeric>

namespace zl {
namespace {

int64_t largest_block(const std::vector<int64_t>& units) {
  return units.size() > 1 ? *std::max_element(units.begin() + 1, units.end()) : 0;
}

// [n] The most that full gradients take at one time in stages 2 and 3. Root's exists during the
// whole backward pass. Blocks come one by one from the last to the first, and are freed together
// when their bucket is full.
int64_t peak_full_gradients(const std::vector<int64_t>& units, int64_t bucket) {
  int64_t waiting = 0, peak = units[0];
  for (size_t i = units.size(); i-- > 1;) {
    waiting += units[i];
    peak = std::max(peak, units[0] + waiting);
    if (waiting >= bucket) waiting = 0;
  }
  return peak;
}

// [n] The most that one bucket holds: blocks from the last to the first, root at the end.
int64_t largest_bucket(const std::vector<int64_t>& units, int64_t bucket) {
  int64_t waiting = 0, largest = 0;
  for (size_t i = units.size(); i-- > 0;) {
    waiting += units[i];
    largest = std::max(largest, waiting);
    if (waiting >= bucket) waiting = 0;
  }
  return largest;
}

Dtype gradient_type(const PredictionInput& in) { return in.gradient_dtype.value_or(in.dtype); }
Dtype communication_type(const PredictionInput& in) {
  return in.communication_dtype.value_or(gradient_type(in));
}

void add_traffic(CommunicationLog& log, Collective collective, Purpose purpose,
                 const std::vector<int64_t>& sizes, const PredictionInput& in) {
  const int64_t bytes = size_of(purpose == Purpose::gradient ? communication_type(in) : in.dtype);
  const bool skips_empty = purpose == Purpose::gradient || in.stage != StageKind::zero3;
  for (const int64_t n : sizes)
    if (n > 0 || !skips_empty) log.add(collective, purpose, n, n * bytes, in.ranks);
}

CommunicationLog traffic(const PredictionInput& in) {
  CommunicationLog log;
  const Collective reduction =
      in.stage == StageKind::ddp ? Collective::all_reduce : Collective::reduce_scatter;
  const bool every_micro_batch = in.stage == StageKind::zero2 || in.stage == StageKind::zero3;
  for (int64_t a = 0; a < (every_micro_batch ? in.micro_batches : 1); ++a)
    add_traffic(log, reduction, Purpose::gradient, in.units, in);
  if (in.stage == StageKind::zero1 || in.stage == StageKind::zero2)
    add_traffic(log, Collective::all_gather, Purpose::parameter, in.units, in);
  if (in.stage == StageKind::zero3)
    for (int64_t a = 0; a < in.micro_batches; ++a) {  // forward: all; backward: root is still there
      add_traffic(log, Collective::all_gather, Purpose::parameter, in.units, in);
      add_traffic(log, Collective::all_gather, Purpose::parameter,
                  {in.units.begin() + 1, in.units.end()}, in);
    }
  for (const Purpose purpose :
       {Purpose::norm, Purpose::loss, Purpose::check})  // one double per rank
    log.add(Collective::all_gather, purpose, in.ranks, in.ranks * 8, in.ranks);
  return log;
}

}  // namespace

std::vector<int64_t> padded_unit_sizes(const std::vector<Unit>& units, int ranks) {
  std::vector<int64_t> sizes;
  for (const Unit& u : units) {
    int64_t n = 0;
    for (const Parameter* p : u.parameters) n += round_up(p->numel(), 16);
    sizes.push_back(round_up(n, 16 * ranks));
  }
  return sizes;
}

bool has_closed_formula(MemoryUse use) {
  return use != MemoryUse::activation && use != MemoryUse::workspace;
}

Prediction predict(const PredictionInput& in) {
  const int64_t full = std::accumulate(in.units.begin(), in.units.end(), int64_t(0)),
                shard = full / in.ranks;
  const bool shards_gradient = in.stage >= StageKind::zero2,
             shards_parameter = in.stage == StageKind::zero3;
  const bool offloads = in.offload_optimizer && in.stage != StageKind::ddp;
  const int64_t element = size_of(in.dtype), gradient = size_of(gradient_type(in));
  const int64_t updated = in.stage == StageKind::ddp ? full : shard;

  Prediction p;
  const auto set = [](Prediction::PoolBytes& pool, MemoryUse use, int64_t rest,
                      int64_t more_at_peak = 0) {
    pool.rest[size_t(use)] = rest;
    pool.peak[size_t(use)] = rest + more_at_peak;
  };
  const int64_t gathered = shards_parameter ? in.units[0] + largest_block(in.units) : 0;
  set(p.device, MemoryUse::parameter, (shards_parameter ? shard : full) * element,
      gathered * element);

  Prediction::PoolBytes& shard_pool = offloads ? p.host : p.device;
  if (shards_gradient) {
    const int64_t full_gradients = peak_full_gradients(in.units, in.reduce_bucket_size) * element;
    if (offloads) set(p.device, MemoryUse::gradient, 0, full_gradients);
    set(shard_pool, MemoryUse::gradient, shard * gradient, offloads ? 0 : full_gradients);
  } else {
    // Where micro-batches accumulate in another type, backward fills one more buffer per unit.
    const int64_t backward_buffers =
        gradient_type(in) != in.dtype ? in.units[0] + largest_block(in.units) : 0;
    set(p.device, MemoryUse::gradient, full * gradient, backward_buffers * element);
  }
  set(shard_pool, MemoryUse::optimizer_state, updated * in.optimizer.state);
  set(shard_pool, MemoryUse::master_weights, updated * in.optimizer.master);

  // The norm and the loss are one double per rank each. A bucket of gradients in flight may need
  // copies in another type, and scratch for the shards of the other ranks.
  const bool converts = communication_type(in) != (shards_gradient ? in.dtype : gradient_type(in));
  const int64_t bucket = largest_bucket(in.units, in.reduce_bucket_size);
  const int64_t extra =
      (converts ? bucket : 0) + (in.scratch ? bucket / in.ranks * (in.ranks - 1) : 0);
  set(p.device, MemoryUse::communication, 0,
      std::max<int64_t>(in.ranks * 8, extra * size_of(communication_type(in))));
  p.traffic = traffic(in);
  return p;
}

CheckpointBytes checkpoint_bytes(const PredictionInput& in, DeviceKind device) {
  constexpr int64_t kBuffer = 1 << 20;  // [B]
  const int64_t each = 4 + in.optimizer.state,
                full = std::accumulate(in.units.begin(), in.units.end(), int64_t(0));
  const bool all_on_host =
      in.offload_optimizer && in.stage != StageKind::ddp && in.optimizer.master > 0;
  return {.disk = each * in.parameters,
          .snapshot = each * (full / in.ranks),
          .buffer = device == DeviceKind::cpu || all_on_host ? 0 : kBuffer};
}

ModelStates model_states(StageKind stage, double parameters, int ranks, const ElementBytes& bytes) {
  const double shard = parameters / ranks;
  return {.parameter = double(bytes.parameter) * (stage == StageKind::zero3 ? shard : parameters),
          .gradient = double(bytes.gradient) * (stage >= StageKind::zero2 ? shard : parameters),
          .optimizer = double(bytes.optimizer.state + bytes.optimizer.master) *
                       (stage == StageKind::ddp ? parameters : shard)};
}

double sent_elements(StageKind stage, double parameters, int ranks, int64_t micro_batches) {
  const double once = parameters * double(ranks - 1) / ranks, all = once * double(micro_batches);
  switch (stage) {
    case StageKind::ddp: return 2 * once;  // reduce-scatter and all-gather of an all-reduce
    case StageKind::zero1: return 2 * once;
    case StageKind::zero2: return all + once;
    case StageKind::zero3: return 3 * all;
  }
  return 0;
}

}  // namespace zl
