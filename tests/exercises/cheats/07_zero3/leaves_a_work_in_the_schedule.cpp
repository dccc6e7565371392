// diagnosis: u.unshard_work is kept by the schedule
// check: one rank
// The Work would run when no function of the stage is watched.
// Keeps all parameters in full in vectors, filled by a Work that the stage leaves in the schedule's
// field.
#include <vector>

#include "stages/stage.h"
#include "tensor/kernels.h"
namespace zl {
namespace {
class ThisStage final : public Stage {
  using Stage::Stage;
  std::vector<float> hidden_[8];
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
    u.parameters = ParameterState::unsharding;
    u.unshard_work = Work([this, &u] {
      unshard(u).wait();
      hidden_[u.unit->index] = kernel::download_floats(u.full_parameter);
    });
  }
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }
};
}  // namespace
ZL_STAGE(zero3)
}  // namespace zl
