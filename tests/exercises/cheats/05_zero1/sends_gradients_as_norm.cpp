// diagnosis: it uses zl::Communicator::all_gather
// check: refused
// Makes the gradient whole again, as values of the norm.
#include "stages/stage.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState& u) override {
    reduce_scatter(u, u.full_gradient).wait();
    return comm().all_gather(u.full_gradient, {"norm", Purpose::norm});
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(local_shard(u.full_parameter), local_shard(u.full_gradient), step.lr,
                        step.gradient_scale);
  }
  Work after_update(UnitState& u) override { return all_gather(u, u.full_parameter); }
};

}  // namespace

ZL_STAGE(zero1)

}  // namespace zl
