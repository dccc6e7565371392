#include "stages/predict/preset_forms.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "stages/predict/peaks.h"

namespace zl {

namespace {

using Sizes = std::vector<int64_t>;  // [n]

int64_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t(0)); }

template <class T>
void take(T& value, const T& ours, const T& shipped) {
  if (value == ours) value = shipped;
}

bool is(const Preset& preset, std::string_view name) { return preset.name == name; }
bool is_deepspeed(const Preset& preset) {
  return std::string_view(preset.name).starts_with("deepspeed");
}

// The options with the system's settings for those that are ours.
Options as_shipped(const Preset& preset, Options o) {
  require_input(!o.reproducible, preset.name,
                " sums as the real system does, which is not reproducible: leave reproducible out");
  require_input(
      o.offload_optimizer == OffloadDevice::none && o.offload_param == OffloadDevice::none,
      preset.name,
      ": zerolab does not predict this system's offload; leave offload_optimizer and "
      "offload_param out");
  o.stage = preset.parent;
  const Options ours;
  if (is_deepspeed(preset)) {
    take<int64_t>(o.reduce_bucket_size, ours.reduce_bucket_size, 500'000'000);
    constexpr int64_t kMost = 1'000'000'000'000;  // its bytes are far from overflow
    require_input(o.reduce_bucket_size <= kMost, preset.name,
                  " allocates its bucket whole, and reduce_bucket_size is ", o.reduce_bucket_size,
                  " elements: more than 1e12; try 5e8, DeepSpeed's default");
    o.optimizer.separate_master = true;
  }
  if (is(preset, "deepspeed-3")) {
    constexpr int64_t kLive = 1'000'000'000;
    take(o.overlap.overlap_comm, false, true);
    take<int64_t>(o.overlap.prefetch_bucket_size, 0, 50'000'000);
    take(o.overlap.max_live_parameters, ours.overlap.max_live_parameters, kLive);
    take<int64_t>(o.overlap.max_reuse_distance, 0, kLive);
  }
  if (is(preset, "fsdp2-no-reshard"))
    o.overlap.max_reuse_distance = std::numeric_limits<int64_t>::max();
  return o;
}

// What the formulas take from a spec.
struct Sizing {
  int64_t ranks, micro_batches, bucket;  // bucket [n]
  int64_t element, gradient, sent;       // [B] of a parameter, a gradient, one that is communicated
  OptimizerBytes optimizer;              // [B] per parameter
  Overlap overlap;
  int64_t persistence_threshold;  // [n]
  std::vector<Sizes> units;       // [n] the parameters of each unit of the model, root first
  Sizes root_matrices, root_vectors;

  int64_t padded(const Sizes& parameters) const {
    int64_t n = 0;
    for (const int64_t p : parameters) n += round_up(p, 16);
    return round_up(n, 16 * ranks);
  }
};

Sizing sizing_of(const TrainingSpec& spec, const Options& o,
                 std::optional<int64_t> persistence_threshold) {
  const Dtype gradient = o.grad_accum_dtype.value_or(o.precision);
  Sizing s{.ranks = spec.ranks,
           .micro_batches = o.accumulation,
           .bucket = o.reduce_bucket_size,
           .element = size_of(o.precision),
           .gradient = size_of(gradient),
           .sent = size_of(o.communication_data_type.value_or(gradient)),
           .optimizer = optimizer_bytes(o.optimizer, o.precision),
           .overlap = o.overlap,
           .persistence_threshold = persistence_threshold.value_or(100'000),
           .units = {},
           .root_matrices = {},
           .root_vectors = {}};
  const auto model = spec.new_model();  // its shapes only: nothing is allocated
  for (const Unit& unit : model->units()) {
    s.units.emplace_back();
    for (const Parameter* p : unit.parameters) {
      s.units.back().push_back(p->numel());
      if (unit.index == 0)
        (p->shape.size() > 1 ? s.root_matrices : s.root_vectors).push_back(p->numel());
    }
  }
  return s;
}

void set(Prediction& p, MemoryUse use, int64_t rest, int64_t peak) {
  p.device.rest[size_t(use)] = rest;
  p.device.peak[size_t(use)] = peak;
}

void add(Prediction& p, Collective collective, Purpose purpose, int64_t n, const Sizing& s) {
  const int64_t bytes = purpose == Purpose::gradient ? s.sent : s.element;
  if (n > 0) p.traffic.add(collective, purpose, n, n * bytes, int(s.ranks));
}

void set_optimizer(Prediction& p, const Sizing& s, int64_t elements) {
  const int64_t master = elements * s.optimizer.master, state = elements * s.optimizer.state;
  set(p, MemoryUse::master_weights, master, master);
  set(p, MemoryUse::optimizer_state, state, state);
}

// [B] An fp32 copy of a gradient of `n` elements, for the update.
int64_t fp32_copy(const Sizing& s, int64_t n) { return s.gradient < 4 ? n * 4 : 0; }

// [n] The parameters of one flat unit in the order in which torch's modules register them: root's
// matrices (embeddings), the blocks, root's vectors (the last norm). Padding is behind each.
Sizes flat_parameters(const Sizing& s) {
  Sizes sizes = s.root_matrices;
  for (size_t i = 1; i < s.units.size(); ++i)
    sizes.insert(sizes.end(), s.units[i].begin(), s.units[i].end());
  sizes.insert(sizes.end(), s.root_vectors.begin(), s.root_vectors.end());
  const int64_t full = s.padded(sizes);
  for (int64_t& n : sizes) n = round_up(n, 16);
  sizes.back() += full - sum(sizes);
  return sizes;
}

// ---- DeepSpeed, stages 1 and 2: rho * (2 g A' + e) * Psi sent, where A' is 1 in stage 1 and the
// ---- number of micro-batches in stage 2.

// A bucket closes before the parameter that would make it larger; a larger parameter is alone.
Sizes flat_buckets(const Sizing& s, bool stage_2) {
  Sizes sizes = flat_parameters(s), buckets;
  if (stage_2) std::ranges::reverse(sizes);
  for (const int64_t n : sizes) {
    if (buckets.empty() || buckets.back() + n > s.bucket) buckets.push_back(0);
    buckets.back() += n;
  }
  return buckets;
}

Prediction flat_zero(const Sizing& s, bool stage_2) {
  const int64_t full = sum(flat_parameters(s)), shard = full / s.ranks;
  const Sizes buckets = flat_buckets(s, stage_2);
  Prediction p;
  set(p, MemoryUse::parameter, full * s.element, full * s.element);
  set_optimizer(p, s, shard);

  // The full gradient and, when it is reduced, the own part; before that, where micro-batches are
  // accumulated in another type, what backward fills. At the update: the own part and its copy.
  const int64_t of_full = stage_2 ? s.element : s.gradient,
                beside = of_full == s.element ? 0 : full * s.element;
  set(p, MemoryUse::gradient, 0,
      std::max(full * of_full + std::max(beside, shard * s.gradient),
               shard * s.gradient + fp32_copy(s, shard)));

  // The bucket, whole; a copy of a larger parameter in another type.
  int64_t copied = 0;
  for (const int64_t n : buckets)
    if (n > s.bucket && of_full != s.sent) copied = std::max(copied, n);
  set(p, MemoryUse::communication, 0,
      ((s.overlap.overlap_comm ? 2 : 1) * s.bucket + copied) * s.sent);

  for (int64_t a = 0; a < (stage_2 ? s.micro_batches : 1); ++a)
    for (const int64_t n : buckets) add(p, Collective::all_reduce, Purpose::gradient, n, s);
  add(p, Collective::all_gather, Purpose::parameter, full, s);
  return p;
}

// ---- PyTorch's DDP: 2 rho g Psi sent, and g Psi more memory.

// A bucket closes when it has 1 MiB (the first) or 25 MiB.
Sizes ddp_buckets(const Sizing& s) {
  constexpr int64_t kFirst = 1 << 20, kNext = 25 << 20;  // [B]
  Sizes sizes = flat_parameters(s), buckets;
  std::ranges::reverse(sizes);
  bool closed = true;
  for (const int64_t n : sizes) {
    if (closed) buckets.push_back(0);
    buckets.back() += n;
    closed = buckets.back() * s.sent >= (buckets.size() == 1 ? kFirst : kNext);
  }
  return buckets;
}

Prediction ddp_with_buckets(const Sizing& s) {
  const int64_t full = sum(flat_parameters(s));
  Prediction p;
  set(p, MemoryUse::parameter, full * s.element, full * s.element);
  set_optimizer(p, s, full);
  set(p, MemoryUse::gradient, 0,
      full * s.gradient + (s.gradient == s.element ? 0 : full * s.element));
  set(p, MemoryUse::communication, full * s.sent, full * s.sent);
  for (const int64_t n : ddp_buckets(s)) add(p, Collective::all_reduce, Purpose::gradient, n, s);
  return p;
}

// ---- DeepSpeed, stage 3: rho * A * (e + (1 - f) e + g) * Psi sent, where f is the part that is
// ---- kept between forward and backward, and persistent parameters are gathered once.

// What is gathered together: the large parameters of each unit of the model, or all of them if they
// have at most prefetch_bucket_size elements; each small parameter by itself.
struct Gathers {
  Sizes large;                    // [n] padded, by unit; or one
  std::vector<Sizes> persistent;  // [n] padded, by unit
};

Gathers gathers_of(const Sizing& s) {
  Gathers g;
  Sizes all;
  for (const Sizes& unit : s.units) {
    Sizes large;
    g.persistent.emplace_back();
    for (const int64_t n : unit) {
      if (n <= s.persistence_threshold)
        g.persistent.back().push_back(s.padded({n}));
      else
        large.push_back(n);
    }
    g.large.push_back(s.padded(large));
    all.insert(all.end(), large.begin(), large.end());
  }
  if (sum(all) <= s.overlap.prefetch_bucket_size) g.large = {s.padded(all)};
  return g;
}

struct Reductions {
  Sizes buckets;         // [n] of one micro-batch
  int64_t gradient = 0;  // [n] the most full gradients at one time
};

// Full gradients are allocated when backward first needs their unit, and freed when their bucket
// has been reduced. What root uses is complete at the end; the others in reverse order.
Reductions reductions(const Sizing& s, const Gathers& gathers) {
  Reductions r;
  int64_t live = 0, filling = 0, in_flight = 0;
  const auto issue = [&] {
    if (filling == 0) return;
    r.buckets.push_back(filling);
    const bool replaced = s.sent != s.element && filling > s.bucket;  // by a copy, at once
    live -= std::exchange(in_flight, 0) + (replaced ? filling : 0);
    if (!replaced && s.overlap.overlap_comm) in_flight = filling;
    if (!replaced && !s.overlap.overlap_comm) live -= filling;
    filling = 0;
  };
  const auto of_unit = [&](size_t unit) {
    Sizes sizes;
    if (unit < gathers.large.size()) sizes.push_back(gathers.large[unit]);
    const Sizes& persistent = gathers.persistent[unit];
    sizes.insert(sizes.end(), persistent.begin(), persistent.end());
    return sizes;
  };
  const auto begin = [&](size_t unit) {
    live += sum(of_unit(unit));
    r.gradient = std::max(r.gradient, live);
  };
  const auto complete = [&](size_t unit) {
    const Sizes sizes = of_unit(unit);
    for (size_t i = sizes.size(); i-- > 0;) {
      if (filling + sizes[i] > s.bucket) issue();
      filling += sizes[i];
      if (filling >= s.bucket) issue();
    }
  };
  begin(0);
  for (size_t block = s.units.size(); block-- > 1;) begin(block), complete(block);
  complete(0);
  issue();
  return r;
}

Prediction zero3_with_persistent(const Sizing& s) {
  const Gathers gathers = gathers_of(s);
  const Reductions reduced = reductions(s, gathers);
  int64_t persistent = 0, largest = std::ranges::max(gathers.large);
  for (const Sizes& of_unit : gathers.persistent)
    for (const int64_t n : of_unit) persistent += n, largest = std::max(largest, n);
  const int64_t shard = (sum(gathers.large) + persistent) / s.ranks,
                kept = (sum(gathers.large) / s.ranks + persistent) * s.element;
  Prediction p;
  set(p, MemoryUse::parameter, kept,
      kept + peak_full_parameters(gathers.large, s.overlap) * s.element);
  set_optimizer(p, s, shard);
  set(p, MemoryUse::gradient, shard * s.gradient,
      shard * s.gradient + std::max(reduced.gradient * s.element, fp32_copy(s, largest / s.ranks)));
  int64_t copied = 0;
  for (const int64_t n : reduced.buckets)
    if (n > s.bucket && s.sent != s.element) copied = std::max(copied, n);
  set(p, MemoryUse::communication, s.bucket * s.sent, (s.bucket + copied) * s.sent);

  const size_t reused = first_reused_block(gathers.large, s.overlap);
  for (int64_t a = 0; a < s.micro_batches; ++a) {
    for (const int64_t n : gathers.large) add(p, Collective::all_gather, Purpose::parameter, n, s);
    for (size_t i = 1; i < reused; ++i)
      add(p, Collective::all_gather, Purpose::parameter, gathers.large[i], s);
    for (const int64_t n : reduced.buckets)
      add(p, Collective::reduce_scatter, Purpose::gradient, n, s);
  }
  for (const Sizes& of_unit : gathers.persistent)
    for (const int64_t n : of_unit) add(p, Collective::all_gather, Purpose::parameter, n, s);
  return p;
}

}  // namespace

PresetPlan predict(const Preset& preset, const TrainingSpec& spec,
                   std::optional<int64_t> persistence_threshold) {
  TrainingSpec shipped = spec;
  shipped.engine = as_shipped(preset, spec.engine);
  const Sizing s = sizing_of(spec, shipped.engine, persistence_threshold);
  PresetPlan plan{.stage = &preset, .memory = {}, .traffic = {}, .buckets = {}};
  Prediction p;
  if (is(preset, "torch-ddp")) {
    plan.buckets = ddp_buckets(s);
    p = ddp_with_buckets(s);
  } else if (is(preset, "deepspeed-3")) {
    plan.buckets = reductions(s, gathers_of(s)).buckets;
    p = zero3_with_persistent(s);
  } else if (is_deepspeed(preset)) {
    plan.buckets = flat_buckets(s, preset.parent == StageKind::zero2);
    p = flat_zero(s, preset.parent == StageKind::zero2);
  } else {  // fsdp2: zero3, without gradients between the steps
    p = predict(prediction_input(shipped));
    p.device.rest[size_t(MemoryUse::gradient)] = 0;
    for (size_t i = s.units.size(); i-- > 0;) plan.buckets.push_back(s.padded(s.units[i]));
  }
  for (int i = 0; i < kMemoryUses; ++i) {
    const MemoryUse use = MemoryUse(i);
    const int64_t rest = p.device.rest_of(use), peak = p.device.peak_of(use);
    if (peak > 0) plan.memory.push_back({0, Pool::device, use, 0, 0, rest, peak});
  }
  for (TrafficRow& row : traffic_rows(preset.parent, {}, p, {.steps = 1}))
    if (row.purpose == Purpose::gradient || row.purpose == Purpose::parameter)
      plan.traffic.push_back(std::move(row));
  return plan;
}

}  // namespace zl
