// ZeRO stage 3 with a secondary partition (hpZ of ZeRO++, arXiv:2306.10209, section 3.2): what the
// forward pass has gathered is kept once per node, so that the backward pass gathers inside a node.
#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    u.secondary_shard = new_shard_tensor(u, MemoryUse::parameter, intra());
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
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
    u.secondary_is_current = false;
  }

  // Full parameters exist only during the unit's forward and backward passes.
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    if (in_backward() && u.secondary_is_current) {
      kernel::copy(u.secondary_shard, local_shard(u.full_parameter, intra()));
      return all_gather(u, u.full_parameter, intra());
    }
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  // By now the gather has been waited for.
  void reshard(UnitState& u) override {
    if (!in_backward() && !u.secondary_is_current) {
      kernel::copy(local_shard(u.full_parameter, intra()), u.secondary_shard);
      u.secondary_is_current = true;
    }
    u.full_parameter = {};
  }
};

}  // namespace

ZL_STAGE(zero3_hpz)

}  // namespace zl
