// Exercise 07, ZeRO stage 3: optimizer state, gradients and parameters are sharded.
#include <stdexcept>

#include "stages/stage.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  // Called once per unit, before training. Sets what this rank keeps of `u` between steps:
  // u.parameter_shard, u.gradient_shard, and u.optimizer with the state of this rank's shard.
  void allocate(UnitState& u) override {
    throw std::logic_error("not written yet: allocate(u), what a rank keeps of unit " + u.name());
  }

  // Whether gradients are reduced after each micro-batch (true), or with the last one of a step.
  bool reduces_every_micro_batch() const override {
    throw std::logic_error("not written yet: reduces_every_micro_batch()");
  }

  // As in exercise 06: sets u.full_gradient to zeros, which the backward pass adds to.
  void before_backward(UnitState& u) override {
    throw std::logic_error("not written yet: before_backward(u) of unit " + u.name());
  }

  // As in exercise 06: starts the collective that gives this rank the mean over ranks of its shard.
  Work reduce_gradient(UnitState& u) override {
    throw std::logic_error("not written yet: reduce_gradient(u) of unit " + u.name());
  }

  // As in exercise 06: adds the mean to u.gradient_shard and frees u.full_gradient.
  void after_reduce(UnitState& u) override {
    throw std::logic_error("not written yet: after_reduce(u) of unit " + u.name());
  }

  // Updates u.parameter_shard by u.gradient_shard, with u.optimizer. `step` has the learning rate
  // and gradient_scale, by which the gradient is multiplied first.
  void update(UnitState& u, const Update& step) override {
    throw std::logic_error("not written yet: update(u, step) of unit " + u.name() +
                           ", learning rate " + std::to_string(step.lr));
  }

  // The forward or backward pass of `u` is about to use its parameters. Allocates u.full_parameter,
  // starts the collective that fills it with the shards of all ranks, and returns its Work.
  Work unshard(UnitState& u) override {
    throw std::logic_error("not written yet: unshard(u) of unit " + u.name());
  }

  // That pass has ended. Frees u.full_parameter.
  void reshard(UnitState& u) override {
    throw std::logic_error("not written yet: reshard(u) of unit " + u.name());
  }
};

}  // namespace

ZL_STAGE(zero3, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch},
                   {Collective::all_gather, Purpose::parameter, Per::forward},
                   {Collective::all_gather, Purpose::parameter, Per::backward}})

}  // namespace zl
