// Distributed data parallel: every rank keeps everything.
#include "stages/stage.h"

namespace zl {
namespace {

class Ddp final : public Stage {
 public:
  using Stage::Stage;
  const char* name() const override { return "ddp"; }

 protected:
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.full());
    m.gradient = make_gradient(m.layout.full());
    m.optimizer = make_optimizer(u, m.layout.full());
    initialize(u);
    point_data(u, m.parameter);
    point_grad(u, m.gradient);
  }

  Work reduce(Unit& u) override {
    if (!last_micro_batch()) return later(u);
    return comm().all_reduce(outgoing(u), Reduction::mean,
                             {u.name + " gradient", Purpose::gradient});
  }
  Tensor reduced_gradient(Unit& u) override { return own(memory(u).gradient); }

  void update(Unit& u, double lr, float gradient_scale) override {
    UnitMemory& m = memory(u);
    m.optimizer->update(m.parameter, m.gradient, lr, gradient_scale);
  }
};

}  // namespace

std::unique_ptr<Stage> make_ddp(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                const StageOptions& options) {
  return std::make_unique<Ddp>(units, comm, memory, options);
}

}  // namespace zl
