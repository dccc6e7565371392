// ZeRO stage 2: each rank keeps the optimizer state and the gradient of its own shard, so every
// micro-batch reduces.
#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class Zero2 final : public Stage {
 public:
  using Stage::Stage;
  const char* name() const override { return "zero2"; }

 protected:
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.full());
    m.gradient = make_gradient_shard(m.layout.shard());
    m.optimizer = make_optimizer(u, m.layout.shard());
    initialize(u);
    point_data(u, m.parameter);
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
    m.optimizer->update(own(m.parameter), m.gradient, lr, gradient_scale);
  }
  Work share(Unit& u) override {
    return comm().all_gather(memory(u).parameter, {u.name + " parameter", Purpose::parameter});
  }
};

}  // namespace

std::unique_ptr<Stage> make_zero2(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options) {
  return std::make_unique<Zero2>(units, comm, memory, options);
}

}  // namespace zl
