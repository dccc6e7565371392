// The settings of training: the stage, the optimizer, the arithmetic of a step. Defaults are the
// paper's way: one unit per bucket, nothing offloaded.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "optim/flat_optimizer.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"

namespace zl {

// A stage, by the name that its file declares (stages/stage_file.h has what else it declares). The
// paper's four have a constant; others are StageKind("hsdp").
class StageKind {
 public:
  constexpr StageKind() : StageKind("ddp") {}
  explicit constexpr StageKind(const char* name) : name_(name) {}  // must outlive it
  static const StageKind ddp, zero1, zero2, zero3;
  constexpr const char* text() const { return name_; }
  friend constexpr bool operator==(StageKind a, StageKind b) {
    return std::string_view(a.name_) == b.name_;
  }

 private:
  const char* name_;
};
constexpr const char* name(StageKind kind) { return kind.text(); }
inline constexpr StageKind StageKind::ddp{"ddp"}, StageKind::zero1{"zero1"},
    StageKind::zero2{"zero2"}, StageKind::zero3{"zero3"};
inline constexpr StageKind kStages[] = {StageKind::ddp, StageKind::zero1, StageKind::zero2,
                                        StageKind::zero3};

// Which communications are in flight while a rank computes, and which full parameters it keeps.
// Results stay bitwise identical. The names are DeepSpeed's.
struct Overlap {
  // One bucket's reduction is in flight while backward goes on; updated parameters are waited for
  // in their unit's next forward pass.
  bool overlap_comm = false;
  // The rest is for stage 3. [n] padded elements.
  // Units are unsharded ahead of their use until so many elements are ready or in flight. 0: none.
  int64_t prefetch_bucket_size = 0;
  // Limits what is unsharded ahead or kept for backward: all full parameters together then fit.
  int64_t max_live_parameters = std::numeric_limits<int64_t>::max();
  // A unit stays unsharded between forward and backward if fewer elements are used in between; each
  // unit behind it is used twice. 0: none. 1: the last unit, which backward needs at once.
  int64_t max_reuse_distance = 0;
  bool operator==(const Overlap&) const = default;
};

// Where shards are kept that the device does not need all the time.
enum class OffloadDevice { none, cpu, nvme };
constexpr const char* name(OffloadDevice device) {
  return device == OffloadDevice::none ? "none" : device == OffloadDevice::cpu ? "cpu" : "nvme";
}

// The settings of a run under any stage. DeepSpeed's JSON configuration is read into one
// (stages/deepspeed/config.h), flags change it, and a program may fill it in by hand. The names are
// DeepSpeed's.
struct Options {
  StageKind stage = StageKind::ddp;
  int64_t accumulation = 1;      // A: micro-batches per step
  double gradient_clipping = 0;  // the largest norm of an update's gradient; 0: any
  OptimizerConfig optimizer;
  ScheduleConfig schedule;

  Dtype precision = Dtype::f32;     // f32, bf16 or f16: of parameters, gradients, activations
  LossScaleConfig loss_scale;       // f16; in other types only a static scale is applied
  bool check_grad_overflow = true;  // bf16; false: update even if the gradient is not finite
  std::optional<Dtype> communication_data_type;  // of reductions; empty: as they are accumulated
  std::optional<Dtype> grad_accum_dtype;         // f32 or `precision`; empty: `precision`

  // [n] padded elements at which a bucket of finished units is reduced, or a bucket of updated
  // units gathered. 1: each unit.
  int64_t reduce_bucket_size = 1, allgather_bucket_size = 1;
  Overlap overlap;
  // The inputs of checkpointed passes (nn/unit.h) wait for backward on the host, which needs a host
  // Memory. DeepSpeed's name.
  bool cpu_checkpointing = false;
  // The same bits for every number of ranks N and of micro-batches per step A with the same N * A:
  // gradients of micro-batches are added one after another in fp32, whichever rank they come from.
  bool reproducible = false;
  // Groups of consecutive ranks, of the stages that have them; 0: as with_groups() of
  // stages/variants/groups.h chooses.
  int64_t ranks_per_node = 0;  // X: so many ranks are a group "intra"
  int64_t replicas = 0;        // R of hsdp: each group of N / R ranks holds the whole state
  // cpu: optimizer state and gradient shards are in host memory. ddp ignores it.
  // nvme: the same, but optimizer state is in a file in `nvme_path`.
  OffloadDevice offload_optimizer = OffloadDevice::none;
  std::string nvme_path;
  Swap swap;  // for nvme; the stage sets swap.disk in a copy
  // cpu: parameter shards are in host memory, and are copied to the device before each gather.
  // nvme: the same from a file in `nvme_path`.
  // Stages that keep full parameters ignore it.
  OffloadDevice offload_param = OffloadDevice::none;
  uint64_t seed = 1337;  // of the initial values
};

// Whether a gradient that is not finite updates nothing.
inline bool skips_nonfinite(const Options& o) {
  return o.check_grad_overflow || o.precision != Dtype::bf16;
}
// Micro-batches are accumulated in the first type; reductions communicate the second.
inline Dtype gradient_type(const Options& o) {
  return o.reproducible ? compute_type(o.precision) : o.grad_accum_dtype.value_or(o.precision);
}
inline Dtype communication_type(const Options& o) {
  return o.reproducible ? gradient_type(o) : o.communication_data_type.value_or(gradient_type(o));
}

}  // namespace zl
