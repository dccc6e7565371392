#include "stages/predict/closed_form.h"

#include <algorithm>
#include <numeric>

#include "stages/predict/peaks.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

int64_t largest_block(const std::vector<int64_t>& units) {
  return units.size() > 1 ? *std::max_element(units.begin() + 1, units.end()) : 0;
}

int64_t sum(const std::vector<int64_t>& units) {
  return std::accumulate(units.begin(), units.end(), int64_t(0));
}

bool shards_gradient(StageKind stage) { return stage >= StageKind::zero2; }

// Sums that do not depend on the number of ranks are fp32.
Dtype gradient_type(const PredictionInput& in) {
  return in.reproducible ? Dtype::f32 : in.gradient_dtype.value_or(in.dtype);
}
Dtype communication_type(const PredictionInput& in) {
  return in.reproducible ? Dtype::f32 : in.communication_dtype.value_or(gradient_type(in));
}

// Whether backward fills full gradients that are freed when they have been reduced: beside a
// gradient shard, and beside the accumulated gradient of reproducible sums.
bool frees_full_gradients(const PredictionInput& in) {
  return shards_gradient(in.stage) || in.reproducible;
}

// Whether a reduction takes a copy of the gradient in another type. A full gradient that would be
// freed after the reduction is then freed when it is issued.
bool converts(const PredictionInput& in) {
  return communication_type(in) != (frees_full_gradients(in) ? in.dtype : gradient_type(in));
}

// [n] The elements of the norm's and of the loss's all-gather: one per rank each; in reproducible
// mode one per block of squares, and one per micro-batch.
int64_t norm_elements(const PredictionInput& in) {
  return in.reproducible ? sum(in.units) / kernel::kSquaresBlock : in.ranks;
}
int64_t loss_elements(const PredictionInput& in) {
  return in.reproducible ? in.micro_batches * in.ranks : in.ranks;
}

void add_traffic(CommunicationLog& log, Collective collective, Purpose purpose,
                 const std::vector<int64_t>& sizes, const PredictionInput& in) {
  const int64_t bytes = size_of(purpose == Purpose::gradient ? communication_type(in) : in.dtype);
  const bool skips_empty = purpose == Purpose::gradient || in.stage != StageKind::zero3;
  for (const int64_t n : sizes)
    if (n > 0 || !skips_empty) log.add(collective, purpose, n, n * bytes, in.ranks);
}

// Overlap and prefetch change when a call is made, never which calls there are. A block that stays
// for backward is not gathered a second time.
CommunicationLog traffic(const PredictionInput& in) {
  CommunicationLog log;
  const Collective reduction =
      in.stage == StageKind::ddp ? Collective::all_reduce : Collective::reduce_scatter;
  const int64_t reductions = frees_full_gradients(in) ? in.micro_batches : 1;
  for (int64_t a = 0; a < reductions; ++a)
    add_traffic(log, reduction, Purpose::gradient, in.units, in);
  if (in.stage == StageKind::zero1 || in.stage == StageKind::zero2)
    add_traffic(log, Collective::all_gather, Purpose::parameter, in.units, in);
  if (in.stage == StageKind::zero3) {
    const auto reused = std::ptrdiff_t(first_reused_block(in.units, in.overlap));
    const std::vector<int64_t> again(in.units.begin() + 1, in.units.begin() + reused);
    for (int64_t a = 0; a < in.micro_batches; ++a) {  // forward: all; backward: root is still there
      add_traffic(log, Collective::all_gather, Purpose::parameter, in.units, in);
      add_traffic(log, Collective::all_gather, Purpose::parameter, again, in);
    }
  }
  for (const auto& [purpose, n] : {std::pair{Purpose::norm, norm_elements(in)},
                                   {Purpose::loss, loss_elements(in)},
                                   {Purpose::check, int64_t(in.ranks)}})
    log.add(Collective::all_gather, purpose, n, n * 8, in.ranks);
  return log;
}

// [B] The most that collectives need beside the tensors of the model: one bucket of gradients, or
// the doubles of the norm or of the loss. A bucket in flight may need copies in another type,
// scratch for the shards of the other ranks, and a copy of the offloaded shard that its sum
// continues.
int64_t peak_communication(const PredictionInput& in, bool gradient_shard_on_host) {
  const int64_t bucket = largest_bucket(in.units, in.reduce_bucket_size), shard = bucket / in.ranks;
  int64_t elements = 0;
  if (converts(in)) elements += bucket;
  if (in.scratch) elements += shard * (in.ranks - 1);
  if (in.reproducible && gradient_shard_on_host) elements += shard;
  return std::max(
      {elements * size_of(communication_type(in)), norm_elements(in) * 8, loss_elements(in) * 8});
}

// [B] The most that full gradients take beside what is kept.
int64_t peak_full_gradient_bytes(const PredictionInput& in) {
  int64_t elements = 0;
  if (frees_full_gradients(in))
    elements = peak_full_gradients(in.units, in.reduce_bucket_size,
                                   in.overlap.overlap_comm && !converts(in));
  else if (gradient_type(in) != in.dtype)  // one buffer per unit, added as soon as it is complete
    elements = in.units[0] + largest_block(in.units);
  return elements * size_of(in.dtype);
}

}  // namespace

std::vector<int64_t> padded_unit_sizes(const std::vector<Unit>& units, int ranks,
                                       bool reproducible) {
  const int64_t shard_multiple = reproducible ? kernel::kSquaresBlock : 16;
  std::vector<int64_t> sizes;
  for (const Unit& u : units) {
    int64_t n = 0;
    for (const Parameter* p : u.parameters) n += round_up(p->numel(), 16);
    sizes.push_back(round_up(n, shard_multiple * ranks));
  }
  return sizes;
}

bool has_closed_formula(MemoryUse use) {
  return use != MemoryUse::activation && use != MemoryUse::workspace;
}

Prediction predict(const PredictionInput& in) {
  const int64_t full = sum(in.units), shard = full / in.ranks;
  const bool shards_parameter = in.stage == StageKind::zero3;
  const bool offloads = in.offload_optimizer && in.stage != StageKind::ddp;
  const int64_t element = size_of(in.dtype), gradient = size_of(gradient_type(in));
  const int64_t updated = in.stage == StageKind::ddp ? full : shard;

  Prediction p;
  const auto set = [](Prediction::PoolBytes& pool, MemoryUse use, int64_t rest,
                      int64_t more_at_peak = 0) {
    pool.rest[size_t(use)] = rest;
    pool.peak[size_t(use)] = rest + more_at_peak;
  };
  const int64_t unsharded = shards_parameter ? peak_full_parameters(in.units, in.overlap) : 0;
  set(p.device, MemoryUse::parameter, (shards_parameter ? shard : full) * element,
      unsharded * element);

  const bool gradient_shard_on_host = offloads && shards_gradient(in.stage);
  const int64_t kept = (shards_gradient(in.stage) ? shard : full) * gradient;
  if (gradient_shard_on_host) set(p.host, MemoryUse::gradient, kept);
  set(p.device, MemoryUse::gradient, gradient_shard_on_host ? 0 : kept,
      peak_full_gradient_bytes(in));

  Prediction::PoolBytes& optimizer_pool = offloads ? p.host : p.device;
  set(optimizer_pool, MemoryUse::optimizer_state, updated * in.optimizer.state);
  set(optimizer_pool, MemoryUse::master_weights, updated * in.optimizer.master);
  set(p.device, MemoryUse::communication, 0, peak_communication(in, gradient_shard_on_host));
  p.traffic = traffic(in);
  return p;
}

CheckpointBytes checkpoint_bytes(const PredictionInput& in, DeviceKind device) {
  constexpr int64_t kBuffer = 1 << 20;  // [B]
  const int64_t each = 4 + in.optimizer.state, full = sum(in.units);
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

SentElements sent_elements(StageKind stage, double parameters, int ranks, int64_t micro_batches,
                           bool reproducible) {
  const double once = parameters * double(ranks - 1) / ranks, all = once * double(micro_batches),
               reduced = shards_gradient(stage) || reproducible ? all : once;
  switch (stage) {
    case StageKind::ddp: return {2 * reduced, 0};  // reduce-scatter and all-gather of an all-reduce
    case StageKind::zero1: return {reduced, once};
    case StageKind::zero2: return {reduced, once};
    case StageKind::zero3: return {reduced, 2 * all};
  }
  return {};
}

}  // namespace zl
