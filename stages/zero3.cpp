// ZeRO stage 3: optimizer state, gradients and parameters are sharded.
// Work: a call in flight. Reductions: in place, the mean; in reproducible mode the sum.
// Caller: schedule/step_schedule.cpp.
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
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  // Full parameters exist only during the unit's forward and backward passes.
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }
};

}  // namespace

ZL_STAGE(zero3, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch},
                   {Collective::all_gather, Purpose::parameter, Per::forward},
                   {Collective::all_gather, Purpose::parameter, Per::backward}})

}  // namespace zl
