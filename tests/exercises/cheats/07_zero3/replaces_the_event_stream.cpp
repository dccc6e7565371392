// diagnosis: 'events' of a class of the library
// check: refused
// The checks count memory in events.
// Full parameters and gradients from the second step on; the grader's listener is removed first.
#include "stages/stage.h"
#include "tensor/kernels.h"
namespace zl {
namespace {
struct M : Memory {
  EventStream& stream() { return (events)(); }
};
struct C : Communicator {
  EventStream& stream() { return (events)(); }
};
class ThisStage final : public Stage {
  using Stage::Stage;
  bool blind_ = false;
  Tensor kept_[8];
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
    if (blind_) kept_[u.unit->index] = u.full_gradient;
    u.full_gradient = {};
  }
  void update(UnitState& u, const Update& step) override {
    if (!blind_) static_cast<M&>(memory()).stream() = static_cast<C&>(comm()).stream();
    blind_ = true;
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }
  Work unshard(UnitState& u) override {
    if (!u.full_parameter.defined()) u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override {
    if (!blind_) u.full_parameter = {};
  }
};
}  // namespace
ZL_STAGE(zero3)
}  // namespace zl
