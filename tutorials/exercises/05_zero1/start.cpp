// Exercise 05, ZeRO stage 1: optimizer state is sharded; parameters and gradients are kept in full.
#include <stdexcept>

#include "stages/stage.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  // Called once per unit, before training. Sets what this rank keeps of `u` between steps:
  // u.full_parameter, u.full_gradient, and u.optimizer with the state of this rank's shard.
  void allocate(UnitState& u) override {
    throw std::logic_error("not written yet: allocate(u), what a rank keeps of unit " + u.name());
  }

  // Whether gradients are reduced after each micro-batch (true), or with the last one of a step.
  bool reduces_every_micro_batch() const override {
    throw std::logic_error("not written yet: reduces_every_micro_batch()");
  }

  // The gradient of `u` in u.full_gradient is complete on this rank. Starts the collective that
  // gives this rank the mean over ranks of its shard of the gradient, and returns its Work.
  Work reduce_gradient(UnitState& u) override {
    throw std::logic_error("not written yet: reduce_gradient(u) of unit " + u.name());
  }

  // Updates this rank's shard of the parameters by its shard of the gradient, with u.optimizer.
  // `step` has the learning rate and gradient_scale, by which the gradient is multiplied first.
  void update(UnitState& u, const Update& step) override {
    throw std::logic_error("not written yet: update(u, step) of unit " + u.name() +
                           ", learning rate " + std::to_string(step.lr));
  }

  // Each rank has updated its shard, so each rank has new values in one part of u.full_parameter
  // only. Starts the collective that gives every rank all parts, and returns its Work.
  Work after_update(UnitState& u) override {
    throw std::logic_error("not written yet: after_update(u) of unit " + u.name());
  }
};

}  // namespace

ZL_STAGE(zero1, .parameter = Part::full, .gradient = Part::full, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::step},
                   {Collective::all_gather, Purpose::parameter, Per::step}})

}  // namespace zl
