// diagnosis: only the first shard has changed: every rank updates the shard of rank 0
// check: bits at 2 ranks
// ZeRO stage 1: optimizer state is sharded; parameters and gradients are kept in full.
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
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }

  void update(UnitState& u, const Update& step) override {
    const Shape first{u.partition.shard()};
    u.optimizer->update(u.full_parameter.slice(0, first), u.full_gradient.slice(0, first), step.lr,
                        step.gradient_scale);
  }
  Work after_update(UnitState& u) override { return all_gather(u, u.full_parameter); }
};

}  // namespace

ZL_STAGE(zero1)

}  // namespace zl
