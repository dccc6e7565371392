#include "stages/predict/preset_forms.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "stages/predict/peaks.h"
#include "stages/steady_state.h"

namespace zl {

namespace {

using Sizes = std::vector<int64_t>;  // [n]

int64_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t(0)); }

template <class T>
void take(T& value, const T& ours, const T& shipped) {
  if (value == ours) value = shipped;
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
  const std::string_view name = preset.name;
  if (name.starts_with("deepspeed")) {
    take<int64_t>(o.reduce_bucket_size, ours.reduce_bucket_size, 500'000'000);
    constexpr int64_t kMost = 1'000'000'000'000;  // its bytes are far from overflow
    require_input(o.reduce_bucket_size <= kMost, preset.name,
                  " allocates its bucket whole, and reduce_bucket_size is ", o.reduce_bucket_size,
                  " elements: more than 1e12; try 5e8, DeepSpeed's default");
    o.optimizer.separate_master = true;
  }
  if (name == "deepspeed-3") {
    take(o.overlap.overlap_comm, false, true);
    take<int64_t>(o.overlap.prefetch_bucket_size, 0, 50'000'000);
    take<int64_t>(o.overlap.max_live_parameters, ours.overlap.max_live_parameters, 1'000'000'000);
    take<int64_t>(o.overlap.max_reuse_distance, 0, 1'000'000'000);
  }
  if (name == "fsdp2-no-reshard")
    o.overlap.max_reuse_distance = std::numeric_limits<int64_t>::max();
  return o;
}

// What the formulas take from a spec.
struct Sizing {
  Options options;  // as_shipped()
  int64_t ranks, persistence_threshold;
  // [B] of a parameter, a gradient, one that is communicated; of the optimizer, per parameter.
  int64_t element, gradient, sent;
  OptimizerBytes optimizer;
  std::vector<Sizes> units = {};  // [n] the parameters of each unit of the model, root first
  // [n] All of them as one flat unit, in the order in which torch's modules register them: root's
  // matrices (embeddings), the blocks, root's vectors (the last norm). Padding is behind each.
  Sizes flat = {};

  int64_t bucket() const { return options.reduce_bucket_size; }
  int64_t padded(const Sizes& parameters) const {
    int64_t n = 0;
    for (const int64_t p : parameters) n += round_up(p, 16);
    return round_up(n, 16 * ranks);
  }
};

Sizing sizing_of(const TrainingSpec& spec, std::optional<int64_t> persistence_threshold) {
  const Options& o = spec.engine;
  Sizing s{.options = o,
           .ranks = spec.ranks,
           .persistence_threshold = persistence_threshold.value_or(100'000),
           .element = size_of(o.precision),
           .gradient = size_of(gradient_type(o)),
           .sent = size_of(communication_type(o)),
           .optimizer = optimizer_bytes(o.optimizer, o.precision)};
  Sizes last;
  const auto model = spec.new_model();  // its shapes only: nothing is allocated
  for (const Unit& unit : model->units()) {
    s.units.emplace_back();
    for (const Parameter* p : unit.parameters) {
      s.units.back().push_back(p->numel());
      const bool vector_of_root = unit.index == 0 && p->shape.size() == 1;
      (vector_of_root ? last : s.flat).push_back(round_up(p->numel(), 16));
    }
  }
  s.flat.insert(s.flat.end(), last.begin(), last.end());
  s.flat.back() += s.padded(s.flat) - sum(s.flat);
  return s;
}

// What a system keeps and sends, and the reductions of one micro-batch.
struct Shipped {
  Prediction p;
  Sizes buckets = {};

  void set(MemoryUse use, int64_t rest, int64_t peak) {
    p.device.rest[size_t(use)] = rest;
    p.device.peak[size_t(use)] = peak;
  }
  void set_optimizer(const Sizing& s, int64_t elements) {
    const int64_t master = elements * s.optimizer.master, state = elements * s.optimizer.state;
    set(MemoryUse::master_weights, master, master);
    set(MemoryUse::optimizer_state, state, state);
  }
  void add(Collective collective, Purpose purpose, const Sizes& sizes, const Sizing& s) {
    const int64_t bytes = purpose == Purpose::gradient ? s.sent : s.element;
    for (const int64_t n : sizes)
      if (n > 0) p.traffic.add(collective, purpose, n, n * bytes, int(s.ranks));
  }
};

// [B] An fp32 copy of a gradient of `n` elements, for the update.
int64_t fp32_copy(const Sizing& s, int64_t n) { return s.gradient < 4 ? n * 4 : 0; }

// [n] The copy of a parameter that is larger than the bucket, and has another type than what is
// sent.
int64_t copied(const Sizing& s, const Sizes& buckets, int64_t element) {
  const int64_t largest = std::ranges::max(buckets);
  return largest > s.bucket() && element != s.sent ? largest : 0;
}

// ---- DeepSpeed, stages 1 and 2: rho * (2 g A' + e) * Psi sent, where A' is 1 in stage 1 and the
// ---- number of micro-batches in stage 2.

Shipped flat_zero(const Sizing& s, bool stage_2) {
  Shipped all;
  Sizes sizes = s.flat;
  const int64_t full = sum(sizes), shard = full / s.ranks;
  all.set(MemoryUse::parameter, full * s.element, full * s.element);
  all.set_optimizer(s, shard);

  // The full gradient and, when it is reduced, the local shard; before that, where micro-batches
  // are accumulated in another type, what backward fills. At the update: the local shard and its
  // copy.
  const int64_t of_full = stage_2 ? s.element : s.gradient,
                beside = of_full == s.element ? 0 : full * s.element;
  all.set(MemoryUse::gradient, 0,
          std::max(full * of_full + std::max(beside, shard * s.gradient),
                   shard * s.gradient + fp32_copy(s, shard)));

  // A bucket closes before the parameter that would make it larger; a larger parameter is alone.
  if (stage_2) std::ranges::reverse(sizes);
  for (const int64_t n : sizes) {
    if (all.buckets.empty() || all.buckets.back() + n > s.bucket()) all.buckets.push_back(0);
    all.buckets.back() += n;
  }
  // The full bucket, or two with overlap_comm; a copy of a larger parameter.
  const int64_t buckets = (s.options.overlap.overlap_comm ? 2 : 1) * s.bucket();
  all.set(MemoryUse::communication, 0, (buckets + copied(s, all.buckets, of_full)) * s.sent);

  for (int64_t a = 0; a < (stage_2 ? s.options.accumulation : 1); ++a)
    all.add(Collective::all_reduce, Purpose::gradient, all.buckets, s);
  all.add(Collective::all_gather, Purpose::parameter, {full}, s);
  return all;
}

// ---- PyTorch's DDP: 2 rho g Psi sent, and g Psi more memory.

Shipped ddp_with_buckets(const Sizing& s) {
  Shipped all;
  Sizes sizes = s.flat;
  const int64_t full = sum(sizes);
  all.set(MemoryUse::parameter, full * s.element, full * s.element);
  all.set_optimizer(s, full);
  all.set(MemoryUse::gradient, 0,
          full * s.gradient + (s.gradient == s.element ? 0 : full * s.element));
  all.set(MemoryUse::communication, full * s.sent, full * s.sent);

  // A bucket closes when it has 1 MiB (the first) or 25 MiB.
  constexpr int64_t kFirst = 1 << 20, kNext = 25 << 20;  // [B]
  std::ranges::reverse(sizes);
  bool closed = true;
  for (const int64_t n : sizes) {
    if (closed) all.buckets.push_back(0);
    all.buckets.back() += n;
    closed = all.buckets.back() * s.sent >= (all.buckets.size() == 1 ? kFirst : kNext);
  }
  all.add(Collective::all_reduce, Purpose::gradient, all.buckets, s);
  return all;
}

// ---- DeepSpeed, stage 3: rho * A * (e + (1 - f) e + g) * Psi sent, where f is the part that is
// ---- kept between forward and backward, and persistent parameters are gathered once.

// What is gathered together: the large parameters of each unit of the model, or all of them if they
// have at most prefetch_bucket_size elements; each small parameter by itself.
struct Gathers {
  Sizes large;                 // [n] padded, by unit; or one
  Sizes persistent;            // [n] padded
  std::vector<Sizes> of_unit;  // [n] both, by unit
};

Gathers gathers_of(const Sizing& s) {
  Gathers g;
  Sizes all;
  for (const Sizes& unit : s.units) {
    Sizes large, persistent;
    for (const int64_t n : unit) {
      const bool persists = n <= s.persistence_threshold;
      (persists ? persistent : large).push_back(persists ? s.padded({n}) : n);
    }
    g.large.push_back(s.padded(large));
    g.of_unit.push_back(persistent);
    g.persistent.insert(g.persistent.end(), persistent.begin(), persistent.end());
    all.insert(all.end(), large.begin(), large.end());
  }
  if (sum(all) <= s.options.overlap.prefetch_bucket_size) g.large = {s.padded(all)};
  for (size_t i = 0; i < g.large.size(); ++i) g.of_unit[i].insert(g.of_unit[i].begin(), g.large[i]);
  return g;
}

// Full gradients are allocated when backward first needs their unit, and freed when their bucket
// has been reduced. What root uses is complete at the end; the others in reverse order. Returns [n]
// the most at one time.
int64_t reduce(const Sizing& s, const Gathers& gathers, Sizes& buckets) {
  int64_t most = 0, live = 0, filling = 0, in_flight = 0;
  const auto issue = [&] {
    if (filling == 0) return;
    buckets.push_back(filling);
    const bool replaced = s.sent != s.element && filling > s.bucket();  // by a copy, at once
    const bool kept = !replaced && s.options.overlap.overlap_comm;      // until the next one
    live -= std::exchange(in_flight, kept ? filling : 0) + (kept ? 0 : filling);
    filling = 0;
  };
  const auto begin = [&](size_t unit) {
    most = std::max(most, live += sum(gathers.of_unit[unit]));
  };
  const auto complete = [&](size_t unit) {
    const Sizes& sizes = gathers.of_unit[unit];
    for (size_t i = sizes.size(); i-- > 0;) {
      if (filling + sizes[i] > s.bucket()) issue();
      filling += sizes[i];
      if (filling >= s.bucket()) issue();
    }
  };
  begin(0);
  for (size_t block = s.units.size(); block-- > 1;) begin(block), complete(block);
  complete(0);
  issue();
  return most;
}

Shipped zero3_with_persistent(const Sizing& s) {
  Shipped all;
  const Gathers gathers = gathers_of(s);
  const int64_t reduced = reduce(s, gathers, all.buckets), persistent = sum(gathers.persistent),
                shard = (sum(gathers.large) + persistent) / s.ranks,
                kept = (sum(gathers.large) / s.ranks + persistent) * s.element;
  int64_t largest = std::ranges::max(gathers.large);
  for (const int64_t n : gathers.persistent) largest = std::max(largest, n);
  all.set(MemoryUse::parameter, kept,
          kept + peaks_of({gathers.large, s.options.overlap}).parameters * s.element);
  all.set_optimizer(s, shard);
  all.set(MemoryUse::gradient, shard * s.gradient,
          shard * s.gradient + std::max(reduced * s.element, fp32_copy(s, largest / s.ranks)));
  all.set(MemoryUse::communication, s.bucket() * s.sent,
          (s.bucket() + copied(s, all.buckets, s.element)) * s.sent);

  const size_t kept_from = first_kept_block(gathers.large, s.options.overlap);
  for (int64_t a = 0; a < s.options.accumulation; ++a) {
    all.add(Collective::all_gather, Purpose::parameter, gathers.large, s);
    for (size_t i = 1; i < kept_from; ++i)
      all.add(Collective::all_gather, Purpose::parameter, {gathers.large[i]}, s);
    all.add(Collective::reduce_scatter, Purpose::gradient, all.buckets, s);
  }
  all.add(Collective::all_gather, Purpose::parameter, gathers.persistent, s);
  return all;
}

// PyTorch's fully_shard: zero3, without gradients between the steps.
Shipped fsdp2(const Sizing& s, const TrainingSpec& spec) {
  Shipped all{predict(prediction_input(spec))};
  all.p.device.rest[size_t(MemoryUse::gradient)] = 0;
  for (size_t i = s.units.size(); i-- > 0;) all.buckets.push_back(s.padded(s.units[i]));
  return all;
}

}  // namespace

PresetPlan predict(const Preset& preset, const TrainingSpec& spec,
                   std::optional<int64_t> persistence_threshold) {
  TrainingSpec shipped = spec;
  shipped.engine = as_shipped(preset, spec.engine);
  const Sizing s = sizing_of(shipped, persistence_threshold);
  const std::string_view name = preset.name;
  const Shipped all = name == "torch-ddp"     ? ddp_with_buckets(s)
                      : name == "deepspeed-3" ? zero3_with_persistent(s)
                      : name.starts_with("deepspeed")
                          ? flat_zero(s, preset.parent == StageKind::zero2)
                          : fsdp2(s, shipped);
  PresetPlan plan{.stage = &preset, .memory = {}, .traffic = {}, .buckets = all.buckets};
  for (const MemoryRow& row : memory_rows(0, {}, all.p))
    if (row.pool == Pool::device && row.predicted_peak > 0) plan.memory.push_back(row);
  for (TrafficRow& row : traffic_rows(preset.parent, {}, all.p, {.steps = 1}))
    if (row.purpose == Purpose::gradient || row.purpose == Purpose::parameter)
      plan.traffic.push_back(std::move(row));
  return plan;
}

}  // namespace zl
