// ZeRO stage 3: each rank keeps the optimizer state, the gradient and the parameters of its own
// shard.
#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class Zero3 final : public Stage {
 public:
  using Stage::Stage;
  const char* name() const override { return "zero3"; }

 protected:
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.shard());
    m.gradient = make_gradient_shard(m.layout.shard());
    m.optimizer = make_optimizer(u, m.layout.shard());
    initialize(u);
  }

  void prepare_gradient(Unit& u) override {
    UnitMemory& m = memory(u);
    if (m.unreduced.defined()) return;  // the unit ran twice
    m.unreduced = make(MemoryUse::gradient, m.layout.full());
    point_grad(u, m.unreduced);
  }
  Work reduce(Unit& u) override {
    return comm().reduce_scatter(outgoing(u), Reduction::mean,
                                 {u.name + " gradient", Purpose::gradient});
  }
  void reduced(Unit& u) override {
    UnitMemory& m = memory(u);
    kernel::accumulate(own(m.unreduced), m.gradient);
    point_grad(u, {});
    m.unreduced = {};
  }
  Tensor reduced_gradient(Unit& u) override { return memory(u).gradient; }

  void update(Unit& u, double lr, float gradient_scale) override {
    UnitMemory& m = memory(u);
    m.optimizer->update(m.parameter, m.gradient, lr, gradient_scale);
  }

  // Whole only from before a pass of the unit, forward or backward, until after it.
  Work gather(Unit& u) override {
    UnitMemory& m = memory(u);
    m.gathered = Tensor::empty(m.parameter.memory(), MemoryUse::parameter, {m.layout.full()},
                               m.parameter.dtype());
    kernel::copy(m.parameter, own(m.gathered));
    point_data(u, m.gathered);
    return comm().all_gather(m.gathered, {u.name + " parameter", Purpose::parameter});
  }
  void release(Unit& u) override {
    point_data(u, {});
    memory(u).gathered = {};
  }
};

}  // namespace

std::unique_ptr<Stage> make_zero3(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options) {
  return std::make_unique<Zero3>(units, comm, memory, options);
}

}  // namespace zl
