// PyTorch's FSDP2 (fully_shard of each block and of the model): zero3 whose gradients are freed
// after the step. fsdp2-no-reshard is the same file with max_reuse_distance without a limit.
#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    u.optimizer = new_shard_optimizer(u);
  }
  bool keeps_gradient() const override { return false; }

  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    for (UnitState& v : units())  // also of a unit that this step does not use
      if (!v.gradient_shard.defined()) v.gradient_shard = new_shard_tensor(v, MemoryUse::gradient);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }
};

}  // namespace

ZL_STAGE(fsdp2)

}  // namespace zl
