// diagnosis: each rank has the new values of its local shard only: the updated parameters were not
// check: bits at 2 ranks
// ZeRO stage 2: optimizer state and gradients are sharded; parameters are replicated.
#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    all_gather(u, u.full_parameter).wait();
    u.optimizer->update(local_shard(u.full_parameter), u.gradient_shard, step.lr,
                        step.gradient_scale);
  }
};

}  // namespace

ZL_STAGE(zero2)

}  // namespace zl
