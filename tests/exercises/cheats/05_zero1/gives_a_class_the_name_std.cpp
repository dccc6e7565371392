// diagnosis: 'std' is the C++ library only
// check: refused
// Sets the ledger back by a name that looks like the C++ library's.
#include "stages/stage.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
    using std = Memory;
    const MemoryLedger saved = memory().std::ledger();
    u.optimizer = new_full_optimizer(u);
    memory().std::ledger() = saved;
  }

  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState& u) override { return all_reduce(u, u.full_gradient); }
  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.full_parameter, u.full_gradient, step.lr, step.gradient_scale);
  }
};

}  // namespace

ZL_STAGE(zero1)

}  // namespace zl
