// diagnosis: optimizer state in full: only 1/N of it is this rank's to keep
// check: memory after three steps
// Is ddp from the first update on, where the first checks of memory have passed.
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
  Work reduce_gradient(UnitState& u) override { return all_reduce(u, u.full_gradient); }
  void update(UnitState& u, const Update& step) override {
    if (u.optimizer->numel() != u.partition.full()) u.optimizer = new_full_optimizer(u);
    u.optimizer->update(u.full_parameter, u.full_gradient, step.lr, step.gradient_scale);
  }
};

}  // namespace

ZL_STAGE(zero1)

}  // namespace zl
