// diagnosis: 'ledger' of a class of the library
// check: refused
// Calls ledger() with an empty pack of arguments.
#include "stages/stage.h"

namespace zl {
namespace {

template <class... A>
MemoryLedger& ledger_of(Memory& m, A... a) {
  struct Reach : Memory {
    MemoryLedger& it(A... b) { return ledger(b...); }
  };
  return static_cast<Reach&>(m).it(a...);
}

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
    const MemoryLedger saved = ledger_of(memory());
    u.optimizer = new_full_optimizer(u);
    ledger_of(memory()) = saved;
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
