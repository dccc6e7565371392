// diagnosis: values outside the ledger
// check: memory at rest
// Keeps all moments in full, from the constructor on, and updates everything on every rank.
#include <vector>

#include "stages/stage.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
 public:
  ThisStage(std::vector<Unit>& list, Communicator& comm, Memory& memory, const StageOptions& o)
      : Stage(list, comm, memory, o) {
    for (const UnitState& u : units()) moments_.emplace_back(2 * u.partition.full());
  }

 private:
  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(local_shard(u.full_parameter), local_shard(u.full_gradient), step.lr,
                        step.gradient_scale);
  }
  Work after_update(UnitState& u) override { return all_gather(u, u.full_parameter); }

  std::vector<std::vector<float>> moments_;
};

}  // namespace

ZL_STAGE(zero1)

}  // namespace zl
