#include "stages/variants/shipped.h"

#include <limits>

namespace zl {
namespace {

constexpr int64_t kBucket = 500'000'000;  // [n] reduce_bucket_size and allgather_bucket_size

bool is_deepspeed(StageKind kind) {
  return kind == StageKind::deepspeed_1 || kind == StageKind::deepspeed_2 ||
         kind == StageKind::deepspeed_3;
}

// Whether all parameters are one flat unit.
bool is_one_unit(StageKind kind) {
  return kind == StageKind::deepspeed_1 || kind == StageKind::deepspeed_2 ||
         kind == StageKind::torch_ddp;
}

template <class T>
void take(T& value, const T& ours, bool given, const T& shipped) {
  if (!given && value == ours) value = shipped;
}

}  // namespace

bool is_as_shipped(StageKind kind) {
  return is_deepspeed(kind) || kind == StageKind::fsdp2 || kind == StageKind::fsdp2_no_reshard ||
         kind == StageKind::torch_ddp;
}

EngineOptions as_shipped(EngineOptions o) {
  if (!is_as_shipped(o.stage)) return o;
  require_input(!o.reproducible, name(o.stage),
                " sums as the real system does, which is not reproducible: leave reproducible out");
  require_input(
      o.offload_optimizer == OffloadDevice::none && o.offload_param == OffloadDevice::none,
      name(o.stage),
      ": zerolab does not imitate this system's offload; leave offload_optimizer and offload_param "
      "out");
  const EngineOptions ours;
  const GivenSettings& given = o.given;
  if (is_deepspeed(o.stage)) {
    take(o.reduce_bucket_size, ours.reduce_bucket_size, given.reduce_bucket_size, kBucket);
    take(o.allgather_bucket_size, ours.allgather_bucket_size, given.allgather_bucket_size, kBucket);
    constexpr int64_t kMost = 1'000'000'000'000;  // its bytes are far from overflow
    require_input(o.reduce_bucket_size <= kMost, name(o.stage),
                  " allocates its bucket whole, and reduce_bucket_size is ", o.reduce_bucket_size,
                  " elements: more than 1e12; try 5e8, DeepSpeed's default");
    o.optimizer.separate_master = true;
  }
  if (o.stage == StageKind::deepspeed_3) {
    constexpr int64_t kPrefetch = 50'000'000, kLive = 1'000'000'000, kPersistent = 100'000;
    take(o.overlap.overlap_comm, false, given.overlap_comm, true);
    take(o.overlap.prefetch_bucket_size, int64_t(0), given.prefetch_bucket_size, kPrefetch);
    take(o.overlap.max_live_parameters, ours.overlap.max_live_parameters, given.max_live_parameters,
         kLive);
    take(o.overlap.max_reuse_distance, int64_t(0), given.max_reuse_distance, kLive);
    if (!o.persistence_threshold) o.persistence_threshold = kPersistent;
  }
  if (o.stage == StageKind::fsdp2_no_reshard)
    o.overlap.max_reuse_distance = std::numeric_limits<int64_t>::max();
  return o;
}

bool same_norm_order(StageKind a, StageKind b) {
  const auto order = [](StageKind kind) {
    if (kind == StageKind::deepspeed_3) return 2;
    return is_one_unit(kind) ? 1 : 0;
  };
  return order(a) == order(b);
}

MakeGrouping grouping_of(const EngineOptions& options) {
  const EngineOptions o = as_shipped(options);
  if (is_one_unit(o.stage)) return group_all;
  if (o.stage == StageKind::deepspeed_3)
    return [small = *o.persistence_threshold,
            prefetch = o.overlap.prefetch_bucket_size](const std::vector<Unit>& units) {
      return group_persistent_apart(units, small, prefetch);
    };
  return group_by_unit;
}

}  // namespace zl
