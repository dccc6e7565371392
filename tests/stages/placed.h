// All four stages as one class: what is sharded is a template argument. An independent second
// implementation, to hold the four files against. It says what differs between the stages, and
// never how one goes: that is why it is not the code.
#pragma once

#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl::test {

struct Sharded {
  bool optimizer, gradient, parameter;
};

template <Sharded S>
class Placed final : public Stage {
 public:
  using Stage::Stage;
  const char* name() const override { return "placed"; }

  static std::unique_ptr<Stage> make_started(std::vector<Unit>& units, Communicator& comm,
                                             Memory& memory, const StageOptions& options) {
    auto stage = std::make_unique<Placed>(units, comm, memory, options);
    stage->start();
    return stage;
  }

 protected:
  int64_t size(Unit& u, bool sharded) {
    return sharded ? memory(u).layout.shard() : memory(u).layout.full();
  }
  Tensor mine(const Tensor& t, bool is_shard) { return is_shard ? t : own(t); }

  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, size(u, S.parameter));
    m.gradient = make(MemoryUse::gradient, size(u, S.gradient));
    m.optimizer = make_optimizer(u, size(u, S.optimizer));
    initialize(u);
    if (!S.parameter) point_data(u, m.parameter);
    if (!S.gradient) point_grad(u, m.gradient);
  }
  void prepare_gradient(Unit& u) override {
    if (!S.gradient || memory(u).unreduced.defined()) return;
    memory(u).unreduced = make(MemoryUse::gradient, size(u, false));
    point_grad(u, memory(u).unreduced);
  }
  Work reduce(Unit& u) override {
    if (!S.gradient && !last_micro_batch()) return {};
    const Tensor& whole = S.gradient ? memory(u).unreduced : memory(u).gradient;
    const CallName call{"placed gradient", Purpose::gradient};
    return S.optimizer ? comm().reduce_scatter(whole, Reduction::mean, call)
                       : comm().all_reduce(whole, Reduction::mean, call);
  }
  void reduced(Unit& u) override {
    if (!S.gradient) return;
    kernel::accumulate(own(memory(u).unreduced), memory(u).gradient);
    point_grad(u, {});
    memory(u).unreduced = {};
  }
  Tensor reduced_gradient(Unit& u) override { return mine(memory(u).gradient, S.gradient); }
  void update(Unit& u, double lr, float gradient_scale) override {
    UnitMemory& m = memory(u);
    if (S.optimizer)
      m.optimizer->update(mine(m.parameter, S.parameter), mine(m.gradient, S.gradient), lr,
                          gradient_scale);
    else
      m.optimizer->update(m.parameter, m.gradient, lr, gradient_scale);
  }
  Work share(Unit& u) override {
    if (!S.optimizer || S.parameter) return {};
    return comm().all_gather(memory(u).parameter, {"placed parameter", Purpose::parameter});
  }
  Work gather(Unit& u) override {
    if (!S.parameter) return {};
    UnitMemory& m = memory(u);
    m.gathered = make(MemoryUse::parameter, size(u, false));
    kernel::copy(m.parameter, own(m.gathered));
    point_data(u, m.gathered);
    return comm().all_gather(m.gathered, {"placed parameter", Purpose::parameter});
  }
  void release(Unit& u) override {
    if (!S.parameter) return;
    point_data(u, {});
    memory(u).gathered = {};
  }
};

using PlacedDdp = Placed<Sharded{false, false, false}>;
using PlacedZero1 = Placed<Sharded{true, false, false}>;
using PlacedZero2 = Placed<Sharded{true, true, false}>;
using PlacedZero3 = Placed<Sharded{true, true, true}>;

}  // namespace zl::test
