#include "stages/predict/closed_form.h"

#include <algorithm>
#include <numeric>

#include "stages/predict/move_forms.h"
#include "stages/predict/peaks.h"
#include "stages/predict/variant_forms.h"
#include "stages/variants/variants.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

int64_t largest_block(const std::vector<int64_t>& units) {
  return units.size() > 1 ? *std::max_element(units.begin() + 1, units.end()) : 0;
}

int64_t sum(const std::vector<int64_t>& units) {
  return std::accumulate(units.begin(), units.end(), int64_t(0));
}

// Of a unit: each rank keeps one, and each replica all of them.
int shards(const PredictionInput& in) { return in.ranks / std::max(1, in.replicas); }

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
  return in.stage != StageKind::zero3_qgz &&
         communication_type(in) != (frees_full_gradients(in) ? in.dtype : gradient_type(in));
}

// [n] The elements of the norm's and of the loss's all-gather: one per rank each; in reproducible
// mode one per block of squares, and one per micro-batch.
int64_t norm_elements(const PredictionInput& in) {
  return in.reproducible ? sum(in.units) / kernel::kSquaresBlock : shards(in);
}
int64_t loss_elements(const PredictionInput& in) {
  return in.reproducible ? in.micro_batches * in.ranks : in.ranks;
}

void add_traffic(CommunicationLog& log, Collective collective, Purpose purpose,
                 const std::vector<int64_t>& sizes, const PredictionInput& in) {
  const int64_t bytes = size_of(purpose == Purpose::gradient ? communication_type(in) : in.dtype);
  for (const int64_t n : sizes)
    if (n > 0) log.add(collective, purpose, n, n * bytes, in.ranks);
}

// Overlap and prefetch change when a call is made, never which calls there are. A block that stays
// for backward is not gathered a second time.
CommunicationLog traffic(const PredictionInput& in) {
  CommunicationLog log;
  const Collective reduction =
      shards_optimizer(in.stage) ? Collective::reduce_scatter : Collective::all_reduce;
  const int64_t reductions = frees_full_gradients(in) ? in.micro_batches : 1;
  for (int64_t a = 0; a < reductions && !find_variant(in.stage); ++a)
    add_traffic(log, reduction, Purpose::gradient, in.units, in);
  if (find_variant(in.stage)) add_variant_reductions(log, in, communication_type(in));
  if (shards_optimizer(in.stage) && !shards_parameter(in.stage))
    add_traffic(log, Collective::all_gather, Purpose::parameter, in.units, in);
  const size_t reused = first_reused_block(in.units, in.overlap);
  for (int64_t a = 0; a < in.micro_batches && shards_parameter(in.stage); ++a) {
    for (const int64_t n : in.units) add_gather(log, in, n, false);
    for (size_t i = 1; i < reused; ++i) add_gather(log, in, in.units[i], true);  // root is there
  }
  log.add(Collective::all_gather, Purpose::norm, norm_elements(in), norm_elements(in) * 8,
          shards(in), in.replicas > 1 ? "intra" : "");
  for (const auto& [purpose, n] :
       {std::pair{Purpose::loss, loss_elements(in)}, {Purpose::check, int64_t(in.ranks)}})
    log.add(Collective::all_gather, purpose, n, n * 8, in.ranks);
  return log;
}

// [B] The most that collectives need beside the tensors of the model: one bucket of gradients, or
// the doubles of the norm or of the loss. A bucket in flight may need copies in another type,
// scratch for the shards of the other ranks, and a copy of the offloaded shard that its sum
// continues.
int64_t peak_communication(const PredictionInput& in, bool gradient_shard_on_host) {
  const auto of_reduction = [&](int64_t n) {
    const int64_t shard = n / shards(in);
    int64_t elements = 0;
    if (converts(in)) elements += n;
    if (in.scratch) elements += shard * (shards(in) - 1);
    if (in.reproducible && gradient_shard_on_host) elements += shard;
    return elements * size_of(communication_type(in));
  };
  int64_t in_flight = of_reduction(largest_bucket(in.units, in.reduce_bucket_size));
  if (bits_of(in.stage) == VariantBits::lossy) in_flight = peak_in_flight(in, of_reduction);
  if (in.stage == StageKind::hsdp) {
    const bool copied = gradient_shard_on_host || communication_type(in) != gradient_type(in);
    in_flight = std::max(in_flight, peak_across(in, copied) * size_of(communication_type(in)));
  }
  return std::max({in_flight, norm_elements(in) * 8, loss_elements(in) * 8});
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

Prediction predict_stage(const PredictionInput& in) {
  const int64_t full = sum(in.units), shard = full / shards(in);
  const bool sharded = shards_parameter(in.stage);
  const bool offloads = offloads_optimizer(in), offloaded_parameter = offloads_parameter(in);
  const int64_t element = size_of(in.dtype), gradient = size_of(gradient_type(in));
  const int64_t updated = shards_optimizer(in.stage) ? shard : full;

  Prediction p;
  const auto set = [](Prediction::PoolBytes& pool, MemoryUse use, int64_t rest,
                      int64_t more_at_peak = 0) {
    pool.rest[size_t(use)] = rest;
    pool.peak[size_t(use)] = rest + more_at_peak;
  };
  const int64_t unsharded = sharded ? peak_full_parameters(in.units, in.overlap) : 0;
  const int64_t kept_parameter = (sharded ? shard : full) * element;
  if (offloaded_parameter)
    set(in.offload_param == OffloadDevice::nvme ? p.disk : p.host, MemoryUse::parameter,
        kept_parameter);
  set(p.device, MemoryUse::parameter,
      (offloaded_parameter ? 0 : kept_parameter) + secondary_shard(in) * element,
      unsharded * element);

  const bool gradient_shard_on_host = offloads && shards_gradient(in.stage);
  const int64_t kept = (shards_gradient(in.stage) ? shard : full) * gradient;
  if (gradient_shard_on_host) set(p.host, MemoryUse::gradient, kept);
  set(p.device, MemoryUse::gradient, gradient_shard_on_host ? 0 : kept,
      peak_full_gradient_bytes(in));

  Prediction::PoolBytes& optimizer_pool = offloads ? p.host : p.device;
  const bool swapped = offloads && in.offload_optimizer == OffloadDevice::nvme;
  const SwappedElements on_disk = swapped ? swapped_elements(in) : SwappedElements{};
  for (const auto& [use, bytes] : {std::pair{MemoryUse::optimizer_state, in.optimizer.state},
                                   {MemoryUse::master_weights, in.optimizer.master}}) {
    set(optimizer_pool, use, swapped ? 0 : updated * bytes, on_disk.in_memory * bytes);
    set(p.disk, use, on_disk.stored * bytes);
  }
  set(p.device, MemoryUse::communication, 0, peak_communication(in, gradient_shard_on_host));
  p.traffic = traffic(in);
  add_moves(p, in, {gradient_type(in), communication_type(in)});
  return p;
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

bool has_closed_formula(MemoryUse use, Pool pool) {
  if (use == MemoryUse::activation) return pool == Pool::host;
  return use != MemoryUse::workspace;
}

Prediction predict(const PredictionInput& in) {
  Prediction p = predict_stage(in);
  if (in.kept_inputs.on_host)
    p.host.peak[size_t(MemoryUse::activation)] = kept_bytes(in.kept_inputs);
  for (int64_t a = 0; a < in.micro_batches; ++a) {
    add_input_moves(p.moves, in.kept_inputs);
    add_input_gathers(p.traffic, in.kept_inputs);
  }
  return p;
}

CheckpointBytes checkpoint_bytes(const PredictionInput& in, DeviceKind device) {
  constexpr int64_t kBuffer = 1 << 20;  // [B]
  const int64_t each = 4 + in.optimizer.state, full = sum(in.units);
  const bool parameter_on_disk = offloads_parameter(in) && in.offload_param == OffloadDevice::nvme,
             on_disk = is_swapped(in) || (parameter_on_disk && in.optimizer.master == 0);
  const bool all_on_host = in.offload_optimizer == OffloadDevice::cpu &&
                           shards_optimizer(in.stage) &&
                           (in.optimizer.master > 0 || offloads_parameter(in));
  return {.disk = each * in.parameters,
          .snapshot = each * (full / shards(in)),
          .buffer = on_disk || (device != DeviceKind::cpu && !all_on_host) ? kBuffer : 0};
}

ModelStates model_states(StageKind stage, double parameters, int ranks, const ElementBytes& bytes) {
  const double shard = parameters / ranks;
  return {.parameter = double(bytes.parameter) * (shards_parameter(stage) ? shard : parameters),
          .gradient = double(bytes.gradient) * (shards_gradient(stage) ? shard : parameters),
          .optimizer = double(bytes.optimizer.state + bytes.optimizer.master) *
                       (shards_optimizer(stage) ? shard : parameters)};
}

SentElements sent_elements(StageKind stage, double parameters, int ranks, int64_t micro_batches,
                           bool reproducible) {
  const double once = parameters * double(ranks - 1) / ranks, all = once * double(micro_batches),
               reduced = shards_gradient(stage) || reproducible ? all : once;
  if (!shards_optimizer(stage)) return {2 * reduced, 0};  // an all-reduce: reduce-scatter, gather
  return {reduced, shards_parameter(stage) ? 2 * all : once};
}

}  // namespace zl
