// The settings of a stage and of the engine around it. Defaults are the paper's way: one unit per
// bucket, nothing offloaded.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "optim/flat_optimizer.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "tensor/memory.h"

namespace zl {

// The paper's four, and variants of them (stages/variants/variants.h).
enum class StageKind { ddp, zero1, zero2, zero3, hsdp, zero3_hpz, zero3_qwz, zero3_qgz };
inline constexpr StageKind kStages[] = {StageKind::ddp, StageKind::zero1, StageKind::zero2,
                                        StageKind::zero3};
const char* name(StageKind kind);
// The one of the four that a stage varies; itself, if it is one of them.
StageKind parent(StageKind kind);
// Of what a rank keeps its shard only.
inline bool shards_optimizer(StageKind kind) { return parent(kind) != StageKind::ddp; }
inline bool shards_gradient(StageKind kind) { return parent(kind) >= StageKind::zero2; }
inline bool shards_parameter(StageKind kind) { return parent(kind) == StageKind::zero3; }

// Where the shards of a rank live. Null: on the device. Full buffers are always on the device. Each
// Memory must outlive the stage.
struct Placement {
  Memory* parameter = nullptr;  // parameter shards (stage 3, but for zero3_qwz)
  Memory* gradient = nullptr;   // gradient shards (stages 2 and 3)
  Memory* optimizer = nullptr;  // optimizer state and master weights (stages 1, 2 and 3)
  Swap swap;                    // with swap.disk they are there, and chunks of them in `optimizer`
};

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
const char* name(OffloadDevice device);

struct StageOptions {
  OptimizerConfig optimizer;
  Dtype dtype = Dtype::f32;  // of parameters, activations, and gradients as backward makes them
  std::optional<Dtype> gradient_dtype;       // micro-batches are accumulated in it; empty: `dtype`
  std::optional<Dtype> communication_dtype;  // of reductions; empty: as gradients are accumulated
  bool skip_nonfinite = true;                // no update by a gradient that is not finite
  uint64_t seed = 1337;                      // of the initial values
  // [n] padded elements at which a bucket of finished units is reduced, or a bucket of updated
  // units gathered. 1: each unit.
  int64_t reduce_bucket_size = 1, allgather_bucket_size = 1;
  Overlap overlap;
  bool reproducible = false;  // as in EngineOptions
  // Groups of ranks, of the variants that have them; others ignore them. make_stage() fills in what
  // is 0: with_groups() of stages/variants/variants.h says how.
  int ranks_per_node = 0;  // X: so many consecutive ranks are a group "intra"
  int replicas = 0;        // R of hsdp: each group of N / R ranks holds the whole state
  Placement placement;
};

// What initialize() takes: the stage, the optimizer and the arithmetic of a step. DeepSpeed's JSON
// configuration produces one (stages/deepspeed/config.h); a program may also fill it in by hand.
struct EngineOptions {
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

  int64_t reduce_bucket_size = 1, allgather_bucket_size = 1;  // [n]
  Overlap overlap;
  // How the inputs of checkpointed units wait for backward; DeepSpeed's names. On the host; each
  // rank keeps 1/N of them, and gathers an input before its use; both: its 1/N is on the host.
  bool cpu_checkpointing = false, partition_activations = false;
  // All ranks compute on the same micro-batches, as tensor-parallel ranks do: what
  // partition_activations needs. A Trainer reads them so; a program without one must pass them so.
  bool replicated_micro_batches = false;
  // The same bits for every number of ranks N and of micro-batches per step A with the same N * A:
  // gradients of micro-batches are added one after another in fp32, whichever rank they come from.
  bool reproducible = false;
  int ranks_per_node = 0, replicas = 0;  // as in StageOptions
  // cpu: optimizer state and gradient shards are in host memory. ddp ignores it.
  // nvme: the same, but optimizer state is in a file in `nvme_path`.
  OffloadDevice offload_optimizer = OffloadDevice::none;
  std::string nvme_path;
  Swap swap;  // for nvme; stage_options() sets swap.disk
  // cpu: parameter shards are in host memory, and are copied to the device before each gather.
  // nvme: the same from a file in `nvme_path`.
  // Stages that keep full parameters ignore it.
  OffloadDevice offload_param = OffloadDevice::none;
  uint64_t seed = 1337;  // of the initial values
};

// Why these settings of activations contradict each other, and what to try; "": they do not.
std::string activations_misfit(const EngineOptions& options, int ranks);

}  // namespace zl
