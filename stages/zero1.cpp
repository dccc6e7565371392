// ZeRO stage 1: each rank keeps the optimizer state of its own shard.
#include "stages/stage.h"

namespace zl {
namespace {

class Zero1 final : public Stage {
 public:
  using Stage::Stage;
  const char* name() const override { return "zero1"; }

 protected:
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.full());
    m.gradient = make_gradient(m.layout.full());
    m.optimizer = make_optimizer(u, m.layout.shard());
    initialize(u);
    point_data(u, m.parameter);
    point_grad(u, m.gradient);
  }

  Work reduce(Unit& u) override {
    if (!last_micro_batch()) return later(u);
    return comm().reduce_scatter(outgoing(u), Reduction::mean,
                                 {u.name + " gradient", Purpose::gradient});
  }
  Tensor reduced_gradient(Unit& u) override { return own(memory(u).gradient); }

  void update(Unit& u, double lr, float gradient_scale) override {
    UnitMemory& m = memory(u);
    m.optimizer->update(own(m.parameter), own(m.gradient), lr, gradient_scale);
  }
  Work share(Unit& u) override {
    return comm().all_gather(memory(u).parameter, {u.name + " parameter", Purpose::parameter});
  }
};

}  // namespace

std::unique_ptr<Stage> make_zero1(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options) {
  return std::make_unique<Zero1>(units, comm, memory, options);
}

}  // namespace zl
