// Data-parallel training as a loop on one device: no stage, no communicator, no shard. It says what
// every stage must compute, and what a stage computes that makes a typical mistake.
#pragma once

#include <memory>
#include <vector>

#include "stages/diagnosis/flat_layout.h"
#include "stages/train/trainer.h"

namespace zl {

// Which values are added first where a step has several micro-batches.
enum class AddFirst { micro_batches, ranks };  // as ddp and zero1 do; as zero2 and zero3 do
AddFirst adds_first(StageKind stage);

struct PlainStep {
  double loss = 0, grad_norm = 0;
  FlatValues gradient;  // the mean over ranks, summed over micro-batches
};

class PlainTraining {
 public:
  // What `spec` describes, in f32 or bf16, in the order of spec.engine.stage, on the device of rank
  // 0. `spec` must outlive it. Throws InputError for settings that it does not follow: f16,
  // gradients of another type.
  explicit PlainTraining(const TrainingSpec& spec);
  ~PlainTraining();

  PlainStep step(double lr);
  // The gradient of each micro-batch a of each rank r of the next step, alone: result[a][r].
  std::vector<std::vector<FlatValues>> gradients_alone();
  FlatValues weights() const;  // as the model uses them
  FlatValues master() const;   // in full precision

  Model& model() { return *model_; }

 private:
  struct FlatUnit;
  double backward(int64_t j);
  FlatValues take_gradient();
  void add_mean(const std::vector<FlatValues>& of_ranks);
  double add_gradients();
  double squared_norm() const;
  void update(double norm, double lr);

  const TrainingSpec& spec_;
  const RankBackends backends_;
  EventStream events_;
  Memory memory_;
  std::unique_ptr<Model> model_;
  std::vector<FlatUnit> units_;
  int64_t steps_ = 0;
};

}  // namespace zl
