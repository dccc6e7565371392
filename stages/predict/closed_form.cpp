#include "stages/predict/closed_form.h"

#include <algorithm>

#include "stages/predict/move_forms.h"
#include "stages/predict/peaks.h"
#include "stages/predict/variant_forms.h"
#include "stages/steady_state.h"
#include "stages/variants/groups.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

int64_t largest_block(const std::vector<int64_t>& units) {
  return units.size() > 1 ? *std::max_element(units.begin() + 1, units.end()) : 0;
}

SteadyInput steady_input(const PredictionInput& in) {
  return {in.options, in.ranks, in.units, first_reused_block(in.units, in.options.overlap)};
}

// Whether a reduction takes a copy of the gradient in another type. A full gradient that would be
// freed after the reduction is then freed when it is issued. Quantised codes are no such copy.
bool converts(const PredictionInput& in) {
  const Options& o = in.options;
  if (file_of(o.stage).quantised(Purpose::gradient)) return false;
  return communication_type(o) != (reduces_every_micro_batch(o) ? o.precision : gradient_type(o));
}

// [B] The most that collectives need beside the tensors of the model: one bucket of gradients, or
// the doubles of the norm or of the loss. A bucket in flight may need copies in another type,
// scratch for the shards of the other ranks, and a copy of the offloaded shard that its sum
// continues.
int64_t peak_communication(const PredictionInput& in, const CommunicationLog& traffic,
                           bool gradient_shard_on_host) {
  const Options& o = in.options;
  const int64_t element = size_of(communication_type(o));
  const auto of_reduction = [&](int64_t n) {
    const int64_t shard = n / in.shards();
    int64_t elements = 0;
    if (converts(in)) elements += n;
    if (in.scratch) elements += shard * (in.shards() - 1);
    if (o.reproducible && gradient_shard_on_host) elements += shard;
    return elements * element;
  };
  int64_t most = of_reduction(largest_bucket(in.units, o.reduce_bucket_size));
  if (bits_of(o.stage) == VariantBits::lossy) most = peak_in_flight(in, of_reduction);
  for (const UnitCall& call : file_of(o.stage).calls)
    if (call.among == Among::inter && call.bits == 0)
      most =
          std::max(most, element * peak_across(in, gradient_shard_on_host ||
                                                       communication_type(o) != gradient_type(o)));
  for (const auto& [key, t] : traffic.rows())
    if (key.purpose == Purpose::norm || key.purpose == Purpose::loss)
      most = std::max(most, t.elements * 8);
  return most;
}

// [B] The most that full gradients take beside what is kept.
int64_t peak_full_gradient_bytes(const PredictionInput& in) {
  const Options& o = in.options;
  int64_t elements = 0;
  if (reduces_every_micro_batch(o))
    elements = peak_full_gradients(in.units, o.reduce_bucket_size,
                                   o.overlap.overlap_comm && !converts(in));
  else if (gradient_type(o) != o.precision)  // one buffer per unit, added as soon as it is complete
    elements = in.units[0] + largest_block(in.units);
  return elements * size_of(o.precision);
}

// [n] Full parameters that a rank has beside its shards. A stage that makes no call of its own for
// backward keeps them from forward on.
int64_t peak_unsharded(const PredictionInput& in) {
  const StageFile& stage = file_of(in.options.stage);
  if (stage.parameter == Part::full) return 0;
  if (!stage.gathers_for_backward()) return steady_input(in).elements(Part::full);
  return peak_full_parameters(in.units, in.options.overlap);
}

Prediction predict_stage(const PredictionInput& in) {
  const Options& o = in.options;
  const SteadyBytes kept = steady_bytes(steady_input(in));
  Prediction p;
  const auto set = [](Prediction::PoolBytes& pool, MemoryUse use, int64_t rest,
                      int64_t more_at_peak = 0) {
    pool.rest[size_t(use)] = rest;
    pool.peak[size_t(use)] = rest + more_at_peak;
  };
  const auto on_device = [](bool elsewhere, int64_t bytes) { return elsewhere ? 0 : bytes; };
  const bool offloads = offloads_optimizer(o), parameter_elsewhere = offloads_parameter(o);
  const int64_t secondary =
      steady_input(in).elements(file_of(o.stage).secondary) * size_of(o.precision);
  if (parameter_elsewhere)
    set(o.offload_param == OffloadDevice::nvme ? p.disk : p.host, MemoryUse::parameter,
        kept.parameter - secondary);
  set(p.device, MemoryUse::parameter,
      secondary + on_device(parameter_elsewhere, kept.parameter - secondary),
      peak_unsharded(in) * size_of(o.precision));

  const bool gradient_shard_on_host = offloads && shards_gradient(o.stage);
  if (gradient_shard_on_host) set(p.host, MemoryUse::gradient, kept.gradient);
  set(p.device, MemoryUse::gradient, on_device(gradient_shard_on_host, kept.gradient),
      peak_full_gradient_bytes(in));

  Prediction::PoolBytes& optimizer_pool = offloads ? p.host : p.device;
  const bool swapped = offloads && o.offload_optimizer == OffloadDevice::nvme;
  const SwappedElements on_disk = swapped ? swapped_elements(in) : SwappedElements{};
  for (const auto& [use, bytes] : {std::pair{MemoryUse::optimizer_state, in.optimizer().state},
                                   {MemoryUse::master_weights, in.optimizer().master}}) {
    set(optimizer_pool, use, swapped ? 0 : kept.optimizer_elements * bytes,
        on_disk.in_memory * bytes);
    set(p.disk, use, on_disk.stored * bytes);
  }
  p.traffic = steady_traffic(steady_input(in));
  set(p.device, MemoryUse::communication, 0,
      peak_communication(in, p.traffic, gradient_shard_on_host));
  add_moves(p, in);
  return p;
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

Prediction predict(const PredictionInput& input) {
  PredictionInput in = input;
  in.options = with_groups(in.options, in.ranks);
  Prediction p = predict_stage(in);
  if (in.kept_inputs.on_host)
    p.host.peak[size_t(MemoryUse::activation)] = kept_bytes(in.kept_inputs);
  for (int64_t a = 0; a < in.options.accumulation; ++a) {
    add_input_moves(p.moves, in.kept_inputs);
    add_input_gathers(p.traffic, in.kept_inputs);
  }
  return p;
}

CheckpointBytes checkpoint_bytes(const PredictionInput& input, DeviceKind device) {
  constexpr int64_t kBuffer = 1 << 20;  // [B]
  PredictionInput in = input;
  in.options = with_groups(in.options, in.ranks);
  const Options& o = in.options;
  const int64_t each = 4 + in.optimizer().state;
  const bool master = in.optimizer().master > 0;
  const bool parameter_on_disk = offloads_parameter(o) && o.offload_param == OffloadDevice::nvme,
             on_disk = is_swapped(in) || (parameter_on_disk && !master);
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
