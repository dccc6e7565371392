// What the four stages share: none of their ideas, all of their bookkeeping.
//
// A stage file says what happens to a unit's memory; this base says when. The schedule of one step,
// in order:
//   forward   before a unit runs: gather; after it: release (root stays until the end of backward)
//   backward  before the walk enters a unit: gather, prepare_gradient; when its last pass was
//   walked: it joins the
//             bucket; when the bucket is full, and at the end: reduce of all its units, then
//             reduced; after: release
//   step      norm of own shards; for each unit: update, clear its gradient; share of all units of
//   a full bucket
// Types: backward makes gradients in the parameters' type; a whole gradient takes them over into
// gradient_dtype; they travel in communication_dtype; an own shard is added to in gradient_dtype.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "nn/unit.h"
#include "optim/flat_optimizer.h"
#include "stages/partition.h"

namespace zl {

enum class StageKind { ddp, zero1, zero2, zero3 };
inline constexpr StageKind kStages[] = {StageKind::ddp, StageKind::zero1, StageKind::zero2,
                                        StageKind::zero3};
const char* name(StageKind kind);

// Where the flat memory of one unit lives on this rank. A Tensor of the layout's `whole` or `shard`
// elements.
struct UnitMemory {
  Partition layout;
  Tensor parameter;  // whole or shard, as the stage keeps it
  Tensor
      gradient;  // likewise, in the type in which micro-batches are added; cleared after each step
  std::unique_ptr<FlatOptimizer> optimizer;  // likewise
  Tensor gathered;  // whole; exists between gather and release only (stage 3)
  // Whole. In stages 2 and 3 it exists while backward fills it and its reduction is under way; in
  // every stage it is the copy that travels where gradients travel in a type of their own.
  Tensor unreduced;
  Tensor micro_batch;  // whole; what backward fills where `gradient` is whole, but of another type
                       // than the parameters
  int64_t first_parameter = 0;  // the place of the unit's first among the parameters of all units
  int passes = 0;   // forward passes of this micro-batch that the backward walk has not yet passed
  int walking = 0;  // of these, the ones that the walk is inside of
  bool waits = false;  // for the last micro-batch of the step, to be reduced with it
};

struct StageOptions {
  OptimizerConfig optimizer;
  Dtype dtype =
      Dtype::f32;  // of parameters and activations, and of gradients as backward makes them
  std::optional<Dtype>
      gradient_dtype;  // in which micro-batches are added: f32 or, if empty, `dtype`
  std::optional<Dtype> communication_dtype;  // of gradients on their way; empty: as they are added
  bool skip_nonfinite = true;                // a step whose gradient is not finite is not made
  uint64_t seed = 1337;                      // of the initial values
  int64_t reduce_bucket_size =
      1;  // [n] padded elements at which a bucket of finished units is reduced; 1: each unit
  int64_t allgather_bucket_size = 1;  // [n] likewise for the gathers after the update
  // Where optimizer state and master weights go, in stages 2 and 3 the gradient shard too; it must
  // outlive the stage. Null: they stay on the device.
  Memory* host = nullptr;
};

// Who is to blame for a gradient that is not finite: of all ranks the lowest, of its parameters the
// first.
struct Culprit {
  int rank;
  std::string parameter;
  // False: that rank's own gradient, before any reduction (with whole gradients, what its
  // micro-batches have added up to). True: every rank's own was finite, and a sum over ranks or
  // micro-batches is not; `rank` owns that shard.
  bool in_sum;
};

// What one optimizer step saw.
struct StepResult {
  double grad_norm = 0;            // of the mean gradient, before clipping
  bool skipped = false;            // the norm was not finite: no rank updated anything
  std::optional<Culprit> culprit;  // of a norm that is not finite; the same on every rank
};

class Stage : public UnitObserver {
 public:
  // `units`, `comm` and `memory` must outlive the stage. units[i].index must be i, each parameter
  // stand in one unit, and no other stage hold these units: std::invalid_argument if not.
  Stage(std::vector<Unit>& units, Communicator& comm, Memory& memory, StageOptions options);
  ~Stage() override;

  virtual const char* name() const = 0;

  // Allocates and initialises what this rank keeps. Called once, by make_stage().
  void start();
  // Replaces all parameters by `values(parameter)`, each whole; every rank takes its part.
  void load(const std::function<std::vector<float>(const Parameter&)>& values);

  // Backward through one micro-batch, starting from `scale`. `last`: the optimizer steps after this
  // one.
  void backward(Tape& tape, const Var& loss, double scale, bool last);

  // Updates the parameters by the mean gradient over ranks and `micro_batches`, clipped to the norm
  // `max_norm` (0: not), and clears the gradients.
  struct StepInput {
    double lr = 0, max_norm = 0, scale = 1;
    int micro_batches = 1;
  };
  StepResult step(const StepInput& input);

  // The mean of one number per rank, added in rank order; the same on every rank. Every rank must
  // call it.
  double mean_over_ranks(double mine);

  // Calls `visit` with the data of each parameter in the order of the units, gathering where
  // needed. Every rank must call it. The tensor is valid during the call only.
  using Visit = std::function<void(const Parameter&, const Tensor& data)>;
  void visit_parameters(const Visit& visit);
  // The same for the weights in full precision: the master copy where there is one.
  void visit_weights(const Visit& visit);

  const UnitMemory& unit_memory(const Unit& u) const { return memory_[size_t(u.index)]; }

  // UnitObserver: the schedule.
  void enter(Unit& u) final;
  void before_forward(Unit& u) final;
  void after_forward(Unit& u) final;
  void before_backward(Unit& u) final;
  void leave(Unit& u) final;
  void after_backward(Unit& u) final;

 protected:
  // A stage is these, in this order, in every file. reduce, gather and share start a communication;
  // the base waits.
  virtual void place(Unit& u) = 0;         // decide what this rank keeps of `u`
  virtual void prepare_gradient(Unit& u);  // the walk is about to add to the gradients of `u`
  virtual Work reduce(Unit& u) = 0;        // every gradient of `u` is complete on this rank
  virtual void reduced(Unit& u);           // that communication has ended
  virtual Tensor reduced_gradient(
      Unit& u) = 0;  // this rank's shard of the gradient, after the last reduce
  virtual void update(Unit& u, double lr, float gradient_scale) = 0;
  virtual Work share(Unit&) { return {}; }   // updated parameters go to the ranks that keep them
  virtual Work gather(Unit&) { return {}; }  // parameters of `u` are about to be used
  virtual void release(Unit&) {}             // and are no longer

  UnitMemory& memory(const Unit& u) { return memory_[size_t(u.index)]; }
  bool last_micro_batch() const { return last_micro_batch_; }
  Work later(Unit& u);  // instead of a reduction: it comes with the last micro-batch
  Communicator& comm() { return comm_; }
  Tensor make(MemoryUse use, int64_t n) { return Tensor::zeros(device_, use, {n}, options_.dtype); }
  Tensor make_gradient(int64_t n);        // in the type in which micro-batches are added
  Tensor make_gradient_shard(int64_t n);  // the same, beside the optimizer if that is offloaded
  Tensor own(const Tensor& whole) const;  // this rank's shard of it
  // The whole that a reduction works on: m.unreduced, or m.gradient where there is none. If
  // gradients travel in another type, m.unreduced becomes their copy in that type.
  Tensor outgoing(Unit& u);
  // An optimizer for the whole unit, or for this rank's shard of it.
  std::unique_ptr<FlatOptimizer> make_optimizer(Unit& u, int64_t n);
  // Initial values of what this rank keeps of the parameters. They depend on (seed, name, element)
  // alone.
  void initialize(Unit& u);
  // Points each parameter's data (or grad) into `flat`, or to nothing if `flat` is undefined.
  void point_data(Unit& u, const Tensor& flat) { point(u, &Parameter::data, flat); }
  void point_grad(Unit& u, const Tensor& flat) { point(u, &Parameter::grad, flat); }

 private:
  struct Bucket {
    std::vector<Unit*> units;
    int64_t elements = 0;
  };
  using SetPiece = std::function<void(const Partition::Piece&, const Tensor& part)>;
  void set_values(Unit& u, const SetPiece& set);
  void announce(Unit& u, const char* event);
  void ensure_gathered(Unit& u);
  void flush_reduce();
  void flush_share();
  Dtype gradient_type() const { return options_.gradient_dtype.value_or(options_.dtype); }
  void flush_waiting();
  void check_gradient(const Unit& u);
  void note_culprit();
  double culprit_code();
  std::optional<Culprit> find_culprit();
  double squared_norm();
  std::vector<double> gather_from_ranks(double mine, CallName name);
  double sum_over_ranks(double mine, CallName name);
  int64_t first_element(
      const Unit& u, int64_t n) const;  // of the whole, for a tensor of n = whole or shard elements
  void point(Unit& u, Tensor Parameter::*member, const Tensor& flat);

  std::vector<Unit>& units_;
  Communicator& comm_;
  Memory& device_;
  StageOptions options_;
  std::vector<UnitMemory> memory_;
  Bucket finished_, updated_;
  bool last_micro_batch_ = true;
  std::vector<Parameter*> parameters_;  // of all units in order
  Tensor squares_;        // (parameters_) f64: squared norm of each one's own gradient of this
                          // micro-batch, before any reduction
  int64_t culprit_ = -1;  // the first of parameters_ whose own gradient was not finite since the
                          // last step; -1: none
};

// The four stages. Each is one file of the same shape; their differences are the lesson.
std::unique_ptr<Stage> make_ddp(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                const StageOptions& options);
std::unique_ptr<Stage> make_zero1(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options);
std::unique_ptr<Stage> make_zero2(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options);
std::unique_ptr<Stage> make_zero3(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options);

// Makes and starts one. Throws OutOfMemory.
std::unique_ptr<Stage> make_stage(StageKind kind, std::vector<Unit>& units, Communicator& comm,
                                  Memory& memory, const StageOptions& options);

}  // namespace zl
