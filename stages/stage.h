// A stage decides what one rank keeps of each unit and what it communicates; ddp.cpp, zero1.cpp,
// zero2.cpp and zero3.cpp are the four, stages/variants/ has variants. When each function is
// called: stages/schedule/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "stages/stage_file.h"
#include "stages/unit_state.h"

namespace zl {

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
  // a copy of that type; one that is kept gets the result copied back when the reduction has
  // finished. In reproducible mode they take the sum, and add it to what earlier micro-batches
  // left.
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
  Memory& memory() { return memories_.device; }
  // Where the shards of a use are: on the device, on the host or on disk. State of the optimizer
  // that is on disk is updated in chunks on the host. Full buffers are always on the device.
  Memory& memory_of(MemoryUse use) const;
  const Options& options() const { return options_; }
  // This rank's shard of the gradient that was reduced last.
  Tensor gradient_shard(const UnitState& u) const;
  // The buffer that backward fills: full_gradient, or one beside it. end_backward() adds that one
  // to full_gradient, or in reproducible mode leaves it to the reduction.
  void begin_backward(UnitState& u);
  void end_backward(UnitState& u);
  bool reduces_now(bool last_micro_batch) const;
  void finish_reduction(UnitState& u);  // after its Work: restores types, then after_reduce()
  // How many gradients were added that the update has to divide by.
  int64_t gradients_added(int64_t micro_batches) const;
  void clear_gradient(UnitState& u);  // after an update, for the next step
  // Waits for every all-gather of parameters that is in flight.
  void wait_for_parameters();
  // The parameters of all units in order.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  // Appends a unit event, such as "before_forward", under the unit's label.
  void announce(const UnitState& u, const char* event);

 private:
  void initialize(UnitState& u);
  std::unique_ptr<FlatOptimizer> new_optimizer(const UnitState& u, int64_t first, int64_t n);
  const Tensor& initial_sum(UnitState& u, const Tensor& accumulator);
  void finish_sum(UnitState& u);

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
