// A stage decides what one rank keeps of each unit and what it communicates; ddp.cpp, zero1.cpp,
// zero2.cpp and zero3.cpp are the four, stages/variants/ has variants. When each function is
// called: stages/schedule/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "optim/flat_optimizer.h"
#include "stages/partition.h"
#include "stages/stage_file.h"

namespace zl {

// Where a unit's parameters are. Stages that replicate parameters are always unsharded.
enum class ParameterState {
  sharded,     // only the shard exists
  unsharding,  // the all-gather is in flight; its Work is UnitState::unshard_work
  unsharded,   // the full parameters may be used
};

// What one rank holds of one unit: its parameters, gradients and optimizer state, in full or as
// this rank's shard.
struct UnitState {
  const Unit* unit = nullptr;
  Partition partition;

  // Flat tensors of partition.full() or partition.shard() elements. The stage decides which of them
  // exist, and when; the others are undefined.
  Tensor full_parameter, parameter_shard;
  Tensor full_gradient, gradient_shard;
  std::unique_ptr<FlatOptimizer> optimizer;  // of the full unit or of the shard

  // Backward fills gradients of the parameters' type. Where micro-batches are accumulated in
  // another type in full_gradient, or in reproducible mode, backward fills this one instead. Only
  // the base class of the stages uses it.
  Tensor backward_gradient;

  // Kept by the schedule (stages/schedule/).
  ParameterState parameters = ParameterState::unsharded;
  // The all-gather of parameters and the reduction that are in flight. Behind the tensors, so that
  // they are destroyed first.
  Work unshard_work, reduce_work;
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

// The numbers of one optimizer step.
struct Update {
  double lr = 0;
  float gradient_scale = 1;  // gradients are multiplied by it first: mean, loss scale, clipping
};

class Stage {
 public:
  // `units` and `comm` must outlive the stage. Throws std::invalid_argument unless check_units()
  // accepts the units (nn/model.h), and no other stage holds the model; InputError if the options
  // need a memory that is not there. make_stage() calls start() afterwards. `shard_group`: the
  // ranks that a unit is sharded among; null: all of them.
  Stage(std::vector<Unit>& units, Communicator& comm, Memories memories, const Options& options,
        Communicator* shard_group = nullptr);
  virtual ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Allocates and initialises what this rank keeps. Called once. Throws OutOfMemory.
  void start();

  // ---- What a stage file defines, in this order. A function that returns a Work starts a
  // ---- communication; the schedule waits for it.

  virtual void allocate(UnitState& u) = 0;               // what this rank keeps between steps
  virtual bool reduces_every_micro_batch() const = 0;    // false: only the last one of a step
  virtual void before_backward(UnitState&) {}            // before backward first adds to gradients
  virtual Work reduce_gradient(UnitState& u) = 0;        // this rank's gradient of `u` is complete
  virtual void after_reduce(UnitState&) {}               // the reduction has finished
  virtual Work reduce_across(UnitState&) { return {}; }  // the step's gradients are all added
  virtual void update(UnitState& u, const Update& step) = 0;
  virtual Work after_update(UnitState&) { return {}; }  // to ranks that keep full parameters
  // Of units with a parameter_shard, whose values are the initial ones after allocate().
  virtual Work unshard(UnitState&) { return {}; }  // full parameters are about to be used
  virtual void reshard(UnitState&) {}              // they are not used any more

  // ---- What a stage file uses.

  // Flat tensors for `u`. Gradients are zeros, because backward adds to them; parameters are
  // uninitialised, because they are set or gathered next. Shards are where memory_of() says. A full
  // gradient that lives for one micro-batch has the parameters' type, any other gradient_type().
  Tensor new_full_tensor(const UnitState& u, MemoryUse use);
  Tensor new_shard_tensor(const UnitState& u, MemoryUse use);
  std::unique_ptr<FlatOptimizer> new_full_optimizer(const UnitState& u);
  std::unique_ptr<FlatOptimizer> new_shard_optimizer(const UnitState& u);
  // This rank's part of a full tensor, in the same memory.
  Tensor local_shard(const Tensor& full) const;

  // Collectives of a unit, in place. The reductions take the mean over ranks, in
  // communication_type(): a gradient of another type that lives for one micro-batch is replaced by
  // a copy of that type; one that is kept gets the result copied back. All of this is done when
  // wait() of the Work has returned.
  //
  // In reproducible mode they take the sum, which begins with what earlier micro-batches left. When
  // wait() has returned, a full gradient that is kept holds the sum of all micro-batches so far,
  // after a reduce_scatter in local_shard(full_gradient) only. A gradient_shard is zero then: its
  // sum is in local_shard(full_gradient) too, and after_reduce() adds it.
  Work all_reduce(UnitState& u, Tensor& full_gradient);
  Work reduce_scatter(UnitState& u, Tensor& full_gradient);
  Work all_gather(UnitState& u, const Tensor& full_parameter);

  // What such a reduction sends: the full gradient, or its copy in communication_type().
  Tensor gradient_to_reduce(UnitState& u, Tensor& full_gradient);

  // ---- What the schedule and readers use.

  std::vector<UnitState>& units() { return units_; }
  // Of a unit of the model.
  UnitState& state(const Unit& unit) { return units_[size_t(unit.index)]; }
  const UnitState& state(const Unit& unit) const { return units_[size_t(unit.index)]; }
  Communicator& comm() { return comm_; }
  Communicator& shard_group() const { return shard_group_; }  // a unit is sharded among these
  // Of the device. What is offloaded is in that of memory_of().
  Memory& memory() { return memories_.device; }
  // Where the shards of a use are: on the device, on the host or on disk. State of the optimizer
  // that is on disk is updated in chunks on the host. Full buffers are always on the device. For
  // activations: where the inputs of checkpointed passes wait for backward.
  Memory& memory_of(MemoryUse use) const;
  // As they were given to the stage: ranks_per_node and replicas may be 0, for groups of the size
  // that the stage chooses.
  const Options& options() const { return options_; }
  // This rank's shard of the reduced gradient, once after_reduce() has run.
  Tensor gradient_shard(const UnitState& u) const;
  // The buffer that backward fills: full_gradient, or backward_gradient. end_backward() adds that
  // one to full_gradient, or in reproducible mode leaves it to the reduction.
  void begin_backward(UnitState& u);
  // Backward has filled it; nothing is communicated yet.
  void end_backward(UnitState& u);
  // Waits for every all-gather of parameters that is in flight.
  void wait_for_parameters();
  // The parameters of all units in order.
  const std::vector<Parameter*>& parameters() const { return parameters_; }

 private:
  void initialize(UnitState& u);
  std::unique_ptr<FlatOptimizer> new_optimizer(const UnitState& u, int64_t first, int64_t n);
  // Either of the two reductions.
  using Reduce = Work (Communicator::*)(const Tensor&, Reduction, CallName, const Tensor&);
  Work reduce(UnitState& u, Tensor& full_gradient, Reduce reduction);

  Communicator &comm_, &shard_group_;
  const Memories memories_;
  const Options options_;
  std::vector<UnitState> units_;
  std::vector<Parameter*> parameters_;
};

template <class T>
std::unique_ptr<Stage> make(std::vector<Unit>& units, Communicator& comm, Memories memories,
                            const Options& options) {
  return std::make_unique<T>(units, comm, memories, options);
}

// Makes and starts options.stage. Throws OutOfMemory, and InputError if the options contradict each
// other or need a memory that is not there.
std::unique_ptr<Stage> make_stage(std::vector<Unit>& units, Communicator& comm, Memories memories,
                                  const Options& options);

}  // namespace zl
