//{ 05
// Exercise 05, ZeRO stage 1: optimizer state is sharded; parameters and gradients are kept in full.
//}
//{ 06
// Exercise 06, ZeRO stage 2: optimizer state and gradients are sharded; parameters are replicated.
//}
//{ 07
// Exercise 07, ZeRO stage 3: optimizer state, gradients and parameters are sharded.
//}
#include <stdexcept>

#include "stages/stage.h"
//{ 06 07
#include "tensor/kernels.h"
//}

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  // Called once per unit, before training. Sets what this rank keeps of `u` between steps:
  //{ 05
  // u.full_parameter, u.full_gradient, and u.optimizer with the state of this rank's shard.
  //}
  //{ 06
  // u.full_parameter, u.gradient_shard, and u.optimizer with the state of this rank's shard.
  //}
  //{ 07
  // u.parameter_shard, u.gradient_shard, and u.optimizer with the state of this rank's shard.
  //}
  void allocate(UnitState& u) override {
    throw std::logic_error("not written yet: allocate(u), what a rank keeps of unit " + u.name());
  }

  // Whether gradients are reduced after each micro-batch (true), or with the last one of a step.
  bool reduces_every_micro_batch() const override {
    throw std::logic_error("not written yet: reduces_every_micro_batch()");
  }

  //{ 06 07
  // The backward pass is about to add to the gradients of `u`, the first time in this micro-batch.
  // Sets u.full_gradient to zeros, which it adds to.
  void before_backward(UnitState& u) override {
    throw std::logic_error("not written yet: before_backward(u) of unit " + u.name());
  }

  //}
  // The gradient of `u` in u.full_gradient is complete on this rank. Starts the collective that
  // gives this rank the mean over ranks of its shard of the gradient, and returns its Work.
  Work reduce_gradient(UnitState& u) override {
    throw std::logic_error("not written yet: reduce_gradient(u) of unit " + u.name());
  }

  //{ 06 07
  // The collective has finished. Adds this micro-batch's mean to u.gradient_shard, which sums over
  // the micro-batches of a step, and frees u.full_gradient.
  void after_reduce(UnitState& u) override {
    throw std::logic_error("not written yet: after_reduce(u) of unit " + u.name());
  }

  //}
  //{ 05 06
  // Updates this rank's shard of the parameters by its shard of the gradient, with u.optimizer.
  // `step` has the learning rate and gradient_scale, by which the gradient is multiplied first.
  //}
  //{ 07
  // Updates u.parameter_shard by u.gradient_shard, with u.optimizer. `step` has the learning rate
  // and gradient_scale, by which the gradient is multiplied first.
  //}
  void update(UnitState& u, const Update& step) override {
    throw std::logic_error("not written yet: update(u, step) of unit " + u.name() +
                           ", learning rate " + std::to_string(step.lr));
  }

  //{ 05 06
  // Each rank has updated its shard, so each rank has new values in one part of u.full_parameter
  // only. Starts the collective that gives every rank all parts, and returns its Work.
  Work after_update(UnitState& u) override {
    throw std::logic_error("not written yet: after_update(u) of unit " + u.name());
  }
  //}
  //{ 07
  // The forward or backward pass of `u` is about to use its parameters. Allocates u.full_parameter,
  // starts the collective that fills it with the shards of all ranks, and returns its Work.
  Work unshard(UnitState& u) override {
    throw std::logic_error("not written yet: unshard(u) of unit " + u.name());
  }

  // That pass has ended. Frees u.full_parameter.
  void reshard(UnitState& u) override {
    throw std::logic_error("not written yet: reshard(u) of unit " + u.name());
  }
  //}
};

}  // namespace

//{ 05
ZL_STAGE(zero1, .parameter = Part::full, .gradient = Part::full, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::step},
                   {Collective::all_gather, Purpose::parameter, Per::step}})
//}
//{ 06
ZL_STAGE(zero2, .parameter = Part::full, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch},
                   {Collective::all_gather, Purpose::parameter, Per::step}})
//}
//{ 07
ZL_STAGE(zero3, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch},
                   {Collective::all_gather, Purpose::parameter, Per::forward},
                   {Collective::all_gather, Purpose::parameter, Per::backward}})
//}

}  // namespace zl
