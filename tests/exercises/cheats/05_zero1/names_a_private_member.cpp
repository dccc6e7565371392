// diagnosis: 'ledger_' is private
// check: refused
// A template argument may name a private member, also in a partial specialisation.
#include "stages/stage.h"

namespace zl {
namespace {

struct Tag {};
MemoryLedger& opened(Memory& m, Tag);
template <auto member, class T>
struct Opened {
  friend MemoryLedger& opened(Memory& m, T) { return m.*member; }
};
template <size_t n, class T>
struct Opens {};
template <class T>
struct Opens<sizeof(Opened<&Memory::ledger_, Tag>), T> {};

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
    const MemoryLedger saved = opened(memory(), {});
    u.optimizer = new_full_optimizer(u);
    opened(memory(), {}) = saved;
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
