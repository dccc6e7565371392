// diagnosis: the gradient is right, but the updated parameters are not
// Sets the weights to a number from an earlier run.
#include "stages/stage.h"
#include "tensor/kernels.h"

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

  void update(UnitState& u, const Update&) override { kernel::fill(0.1, u.full_parameter); }
  Work after_update(UnitState& u) override { return all_gather(u, u.full_parameter); }
};

}  // namespace

ZL_STAGE(zero1)

}  // namespace zl
