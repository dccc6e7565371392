// Data-parallel training as a loop on one device: no stage, no communicator, no shard. It says what
// every stage must compute, and what a stage computes that makes a typical mistake. The values of
// all units are in one flat vector.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stages/train/trainer.h"

namespace zl {

// All units in order, each with the padding of Partition.
using FlatValues = std::vector<float>;

// `units` must outlive it.
class FlatLayout {
 public:
  FlatLayout(const std::vector<Unit>& units, int ranks);

  // "block0.up[17] of unit block0", or "the padding of unit block0".
  std::string text(int64_t position) const;

  // This rank's shards of all units in order.
  FlatValues shards(const FlatValues& full, int rank) const;
  // The full values, from the shards of all ranks.
  FlatValues full(const std::vector<FlatValues>& shards) const;

  struct UnitRange {
    std::string name;
    int64_t begin;
    Partition partition;
  };
  const std::vector<UnitRange>& units() const { return units_; }
  // Every parameter in full, at its position in the flat values.
  const std::vector<Partition::Piece>& parameters() const { return parameters_; }
  int64_t size() const { return size_; }  // [n] with padding
  int ranks() const { return ranks_; }

 private:
  std::vector<UnitRange> units_;
  std::vector<Partition::Piece> parameters_;
  int ranks_;
  int64_t size_ = 0;
};

// " is 0.2519, must be 0.1259 (ratio 2)".
std::string compared(double is, double must);
// "block0.up[17] of unit block0 on rank 2 is 0.2519, must be 0.1259 (ratio 2); 71 of 900 elements
// differ". "" if all bits are the same.
std::string first_difference(const FlatLayout& layout, const FlatValues& values,
                             const FlatValues& expected, int rank);

struct PlainStep {
  double loss = 0, grad_norm = 0;
  FlatValues gradient;  // the mean over ranks, summed over micro-batches, times the loss scale
};

class PlainTraining {
 public:
  // What `spec` describes, on the device of rank 0. `spec` must outlive it.
  explicit PlainTraining(const TrainingSpec& spec);

  // One step. ddp and zero1 add micro-batches before ranks, zero2 and zero3 ranks before
  // micro-batches: it adds as spec.engine.stage does. Throws InputError for settings that it does
  // not follow: f16, gradients of another type.
  PlainStep step(double lr);
  // The gradient of micro-batch a of rank r of the next step, alone, times the loss scale.
  FlatValues gradient(int64_t a, int r);
  std::vector<std::vector<FlatValues>> gradients_alone();  // all of them: result[a][r]
  FlatValues weights() const;                              // as the model uses them

  Model& model() { return *model_; }
  const FlatLayout& layout() const { return layout_; }  // of all that is flat

 private:
  Tensor zeros(MemoryUse use, Dtype type);  // of all units
  std::unique_ptr<FlatOptimizer> new_optimizer();
  double backward(int64_t a, int r);
  double add_gradients();
  double squared_norm() const;

  const TrainingSpec& spec_;
  const double loss_scale_;
  const RankBackends backends_;
  EventStream events_;
  Memory memory_;
  std::unique_ptr<Model> model_;  // its parameters point into memory_
  const FlatLayout layout_;
  // Flat, of all units: nothing is sharded. Backward adds to of_backward_; gradient_ is the step's.
  Tensor parameters_, of_backward_, gradient_;
  std::unique_ptr<FlatOptimizer> optimizer_;
  int64_t steps_ = 0;
};

}  // namespace zl
