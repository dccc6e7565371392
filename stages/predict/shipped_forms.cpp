#include "stages/predict/shipped_forms.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "stages/persistence.h"
#include "stages/predict/peaks.h"

namespace zl {
namespace {

using Sizes = std::vector<int64_t>;  // [n]

int64_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t(0)); }
int64_t largest(const Sizes& sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

Dtype gradient_type(const PredictionInput& in) { return in.gradient_dtype.value_or(in.dtype); }
Dtype communication_type(const PredictionInput& in) {
  return in.communication_dtype.value_or(gradient_type(in));
}

void set(Prediction& p, MemoryUse use, int64_t rest, int64_t peak) {
  p.device.rest[size_t(use)] = rest;
  p.device.peak[size_t(use)] = peak;
}

void add(CommunicationLog& log, Collective collective, Purpose purpose, int64_t n,
         const PredictionInput& in) {
  const Dtype type = purpose == Purpose::gradient ? communication_type(in) : in.dtype;
  if (n > 0) log.add(collective, purpose, n, n * size_of(type), in.ranks);
}

// The doubles of the norm, of the loss and of the check of a gradient that is not finite.
void add_numbers(CommunicationLog& log, const PredictionInput& in) {
  for (const Purpose purpose : {Purpose::norm, Purpose::loss, Purpose::check})
    log.add(Collective::all_gather, purpose, in.ranks, in.ranks * 8, in.ranks);
}

// [n] For a sum in rank order: a rank adds 1/N of the elements, in lines of 64 if N does not divide
// them, and receives them from the N - 1 others. The last ranks have what is left.
int64_t scratch(const PredictionInput& in, int64_t n) {
  if (!in.scratch) return 0;
  const int64_t part =
      n % in.ranks == 0 ? n / in.ranks : round_up((n + in.ranks - 1) / in.ranks, 64);
  return std::clamp<int64_t>(n - in.rank * part, 0, part) * (in.ranks - 1);
}

// [B] An fp32 copy of a gradient of `n` elements, for the update.
int64_t fp32_copy(const PredictionInput& in, int64_t n) {
  return in.updates && size_of(gradient_type(in)) < 4 ? n * 4 : 0;
}

// [n] The parameters of the one flat unit, each with the padding behind it.
Sizes flat_parameters(const PredictionInput& in) {
  Sizes sizes;
  for (const int64_t n : in.unit_parameters[0]) sizes.push_back(round_up(n, 16));
  sizes.back() += in.units[0] - sum(sizes);
  return sizes;
}

// [n] A bucket closes before the element that would make it larger.
Sizes buckets_up_to(const Sizes& sizes, int64_t limit) {
  Sizes buckets;
  for (const int64_t n : sizes) {
    if (buckets.empty() || buckets.back() + n > limit) buckets.push_back(0);
    buckets.back() += n;
  }
  return buckets;
}

Sizes backward_order(Sizes sizes) {
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

// ---- DeepSpeed, stages 1 and 2: rho * (2 g A' + e) * Psi sent, where A' is 1 in stage 1 and the
// ---- number of micro-batches in stage 2.

Prediction flat_zero(const PredictionInput& in) {
  const bool every = in.stage == StageKind::deepspeed_2;
  const int64_t full = in.units[0], shard = full / in.ranks, element = size_of(in.dtype),
                gradient = size_of(gradient_type(in)), sent = size_of(communication_type(in));
  const Sizes sizes = flat_parameters(in),
              buckets = buckets_up_to(every ? backward_order(sizes) : sizes, in.reduce_bucket_size);
  Prediction p;
  set(p, MemoryUse::parameter, full * element, full * element);
  set(p, MemoryUse::master_weights, shard * in.optimizer.master, shard * in.optimizer.master);
  set(p, MemoryUse::optimizer_state, shard * in.optimizer.state, shard * in.optimizer.state);

  // The full gradient and, when it is reduced, the own part; before that, where micro-batches are
  // accumulated in another type, what backward fills. At the update: the own part and its copy.
  const Dtype of_full = every ? in.dtype : gradient_type(in);
  const int64_t beside = of_full == in.dtype ? 0 : full * element;
  set(p, MemoryUse::gradient, 0,
      std::max({full * size_of(of_full) + std::max(beside, shard * gradient),
                shard * gradient + fp32_copy(in, shard)}));

  // The bucket, whole; a copy of a larger parameter in another type.
  int64_t more = 0;
  for (const int64_t n : buckets) {
    const bool copied = n > in.reduce_bucket_size && of_full != communication_type(in);
    more = std::max(more, (copied ? n : 0) + scratch(in, n));
  }
  const int64_t copies = in.overlap.overlap_comm ? 2 : 1;
  set(p, MemoryUse::communication, 0,
      std::max<int64_t>((copies * in.reduce_bucket_size + more) * sent, in.ranks * 8));

  for (int64_t a = 0; a < (every ? in.micro_batches : 1); ++a)
    for (const int64_t n : buckets)
      add(p.traffic, Collective::all_reduce, Purpose::gradient, n, in);
  add(p.traffic, Collective::all_gather, Purpose::parameter, full, in);
  add_numbers(p.traffic, in);
  return p;
}

// ---- PyTorch's DDP: 2 rho g Psi sent, and g Psi more memory.

Prediction ddp_with_buckets(const PredictionInput& in) {
  constexpr int64_t kFirst = 1 << 20, kNext = 25 << 20;  // [B]
  const int64_t full = in.units[0], element = size_of(in.dtype),
                gradient = size_of(gradient_type(in)), sent = size_of(communication_type(in));
  Sizes buckets;
  bool closed = true;
  for (const int64_t n : backward_order(flat_parameters(in))) {
    if (closed) buckets.push_back(0);
    buckets.back() += n;
    closed = buckets.back() * sent >= (buckets.size() == 1 ? kFirst : kNext);
  }
  Prediction p;
  set(p, MemoryUse::parameter, full * element, full * element);
  set(p, MemoryUse::master_weights, full * in.optimizer.master, full * in.optimizer.master);
  set(p, MemoryUse::optimizer_state, full * in.optimizer.state, full * in.optimizer.state);
  set(p, MemoryUse::gradient, 0,
      full * gradient + (gradient_type(in) == in.dtype ? 0 : full * element));
  int64_t more = in.ranks * 8;
  for (const int64_t n : buckets) more = std::max(more, scratch(in, n) * sent);
  set(p, MemoryUse::communication, full * sent, full * sent + more);
  for (const int64_t n : buckets) add(p.traffic, Collective::all_reduce, Purpose::gradient, n, in);
  add_numbers(p.traffic, in);
  return p;
}

// ---- DeepSpeed, stage 3: rho * A * (e + (1 - f) e + g) * Psi sent, where f is the part that is
// ---- kept between forward and backward, and persistent parameters are gathered once.

struct Reductions {
  Sizes buckets;         // [n] of one micro-batch
  int64_t gradient = 0;  // [n] the most full gradients at one time
};

// Full gradients are allocated when backward first needs their unit, and freed when their bucket
// has been reduced. Units that root uses are complete at the end. The units of a block are complete
// in reverse order.
Reductions reductions(const PredictionInput& in) {
  const std::vector<int>& of_root = in.used_by[0];
  const bool converts = communication_type(in) != in.dtype;
  Reductions r;
  int64_t live = 0, filling = 0, in_flight = 0;
  const auto issue = [&] {
    if (filling == 0) return;
    r.buckets.push_back(filling);
    const bool replaced = converts && filling > in.reduce_bucket_size;  // by a copy, at once
    live -= std::exchange(in_flight, 0) + (replaced ? filling : 0);
    if (!replaced && in.overlap.overlap_comm) in_flight = filling;
    if (!replaced && !in.overlap.overlap_comm) live -= filling;
    filling = 0;
  };
  const auto pass = [&](const std::vector<int>& units, bool root, bool begins) {
    for (size_t i = units.size(); i-- > 0;) {
      const int64_t n = in.units[size_t(units[i])];
      if (!root && std::ranges::find(of_root, units[i]) != of_root.end()) continue;
      if (begins) {
        live += n;
        continue;
      }
      if (filling + n > in.reduce_bucket_size) issue();
      filling += n;
      if (filling >= in.reduce_bucket_size) issue();
    }
    r.gradient = std::max(r.gradient, live);
  };
  pass(of_root, true, true);
  for (size_t block = in.used_by.size(); block-- > 1;) {
    pass(in.used_by[block], false, true);
    pass(in.used_by[block], false, false);
  }
  pass(of_root, true, false);
  issue();
  return r;
}

Prediction zero3_with_persistent(const PredictionInput& in) {
  const int64_t element = size_of(in.dtype), gradient = size_of(gradient_type(in)),
                sent = size_of(communication_type(in));
  Sizes large, persistent;
  for (size_t i = 0; i < in.units.size(); ++i) {
    const Sizes& parameters = in.unit_parameters[i];
    const bool small =
        i > 0 && parameters.size() == 1 && is_persistent(parameters[0], in.persistence_threshold);
    (small ? persistent : large).push_back(in.units[i]);
  }
  const Reductions reduced = reductions(in);
  const int64_t shard = sum(in.units) / in.ranks,
                kept = (sum(large) / in.ranks + sum(persistent)) * element;
  Prediction p;
  set(p, MemoryUse::parameter, kept, kept + peak_full_parameters(large, in.overlap) * element);
  set(p, MemoryUse::master_weights, shard * in.optimizer.master, shard * in.optimizer.master);
  set(p, MemoryUse::optimizer_state, shard * in.optimizer.state, shard * in.optimizer.state);
  set(p, MemoryUse::gradient, shard * gradient,
      shard * gradient +
          std::max(reduced.gradient * element, fp32_copy(in, largest(in.units) / in.ranks)));
  int64_t more = in.ranks * 8;
  for (const int64_t n : reduced.buckets) {
    const bool copied = n > in.reduce_bucket_size && communication_type(in) != in.dtype;
    more = std::max(more, ((copied ? n : 0) + scratch(in, n)) * sent);
  }
  const int64_t bucket = in.reduce_bucket_size * sent;
  set(p, MemoryUse::communication, bucket, bucket + more);

  const size_t reused = first_reused_block(large, in.overlap);
  for (int64_t a = 0; a < in.micro_batches; ++a) {
    for (const int64_t n : large) add(p.traffic, Collective::all_gather, Purpose::parameter, n, in);
    for (size_t i = 1; i < reused; ++i)
      add(p.traffic, Collective::all_gather, Purpose::parameter, large[i], in);
    for (const int64_t n : reduced.buckets)
      add(p.traffic, Collective::reduce_scatter, Purpose::gradient, n, in);
  }
  for (const int64_t n : persistent)
    for (CommunicationLog* log : {&p.traffic, &p.after_update})
      add(*log, Collective::all_gather, Purpose::parameter, n, in);
  add_numbers(p.traffic, in);
  return p;
}

// ---- PyTorch's FSDP2: zero3, without gradients between the steps.

Prediction fsdp2(PredictionInput in) {
  in.stage = StageKind::zero3;
  in.kept_inputs = {};  // predict() adds them for every stage
  Prediction p = predict(in);
  p.device.rest[size_t(MemoryUse::gradient)] = 0;
  return p;
}

}  // namespace

Prediction predict_as_shipped(const PredictionInput& in) {
  switch (in.stage) {
    case StageKind::deepspeed_1:
    case StageKind::deepspeed_2: return flat_zero(in);
    case StageKind::deepspeed_3: return zero3_with_persistent(in);
    case StageKind::torch_ddp: return ddp_with_buckets(in);
    default: return fsdp2(in);
  }
}

}  // namespace zl
