// What one rank holds of one unit: its parameters, gradients and optimizer state, in full or as
// this rank's shard.
#pragma once

#include <functional>
#include <memory>

#include "dist/work.h"
#include "optim/flat_optimizer.h"
#include "stages/partition.h"

namespace zl {

// Where a unit's parameters are. Stages that replicate parameters are always unsharded.
enum class ParameterState {
  sharded,     // only the shard exists
  unsharding,  // the all-gather is in flight; its Work is UnitState::unshard_work
  unsharded,   // the full parameters may be used
};

struct UnitState {
  const Unit* unit = nullptr;
  Partition partition;

  // Flat tensors of partition.full() or partition.shard() elements. The stage decides which of them
  // exist, and when; the others are undefined.
  Tensor full_parameter, parameter_shard;
  Tensor full_gradient, gradient_shard;
  std::unique_ptr<FlatOptimizer> optimizer;  // of the full unit or of the shard

  // Buffers of a gradient beside full_gradient and gradient_shard, while it is made and reduced.
  // Only the base class of the stages uses them.
  struct GradientBuffers {
    // Backward fills gradients of the parameters' type. Where micro-batches are accumulated in
    // another type in full_gradient, or in reproducible mode, backward fills this one instead.
    Tensor of_backward;
    // What is reduced, where that is neither full_gradient nor takes its place: a copy in another
    // type, or of_backward.
    Tensor communicated;
    // In reproducible mode, while a reduction is in flight: the part of the kept gradient that it
    // adds to, and what its sum begins with: the same, or a copy on the device if it is offloaded.
    Tensor accumulator, initial_sum;
  } buffers;

  // Kept by the schedule (stages/schedule/).
  ParameterState parameters = ParameterState::unsharded;
  Work unshard_work;
  int running = 0;                 // passes that are under way
  int forward_passes = 0;          // of this micro-batch that backward has not gone through yet
  int64_t completed_in = 0;        // the micro-batch whose gradient was complete last
  bool in_backward = false;        // backward has begun to fill this unit's gradient
  bool reduces_with_last = false;  // its gradient waits for the step's last micro-batch
  int64_t first_parameter = 0;     // position among the parameters of all units

  const std::string& name() const { return unit->name; }
  // What the rank keeps of the parameters between steps.
  const Tensor& kept_parameter() const {
    return parameter_shard.defined() ? parameter_shard : full_parameter;
  }
  // Lets every Parameter::data (or grad) of the unit point into `full`, or to nothing.
  void bind_parameters(const Tensor& full);
  void bind_gradients(const Tensor& full);

  // Calls `visit` with each piece of a parameter that `rank` holds in this stage, and the elements
  // of every tensor that stores its values: the parameter, and the master weights if there are any.
  using Visit = std::function<void(const Partition::Piece&, const Tensor& values)>;
  void visit_weights(int rank, const Visit& visit) const;
};

}  // namespace zl
