// DDP: parameters, gradients and optimizer state are replicated; each step averages the gradients.
// Work: a call in flight. Reductions: in place, the mean; in reproducible mode the sum.
// Caller: schedule/step_schedule.cpp.
#include "stages/stage.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_full_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState& u) override { return all_reduce(u, u.full_gradient); }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.full_parameter, u.full_gradient, step.lr, step.gradient_scale);
  }
};

}  // namespace

ZL_STAGE(ddp, .parameter = Part::full, .gradient = Part::full, .optimizer = Part::full,
         .calls = {{Collective::all_reduce, Purpose::gradient, Per::step}})

}  // namespace zl
