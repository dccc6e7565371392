// HSDP, also MiCS (arXiv:2205.00119): ZeRO stage 3 inside each group of N / R ranks. The R groups
// are replicas, which add their gradients once per step.
#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override { return sum_scatter(u, u.full_gradient, intra()); }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }

  // All micro-batches are added by now. Divided once, by all ranks: sums of this rank's group alone
  // are not the mean of anything.
  Work reduce_across(UnitState& u) override {
    return and_then(sum_shards(u, u.gradient_shard, inter()),
                    [this, &u] { kernel::divide(sum_divisor(), u.gradient_shard); });
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  // Full parameters exist only during the unit's forward and backward passes.
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter, intra());
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }
};

}  // namespace

ZL_STAGE(hsdp)

}  // namespace zl
