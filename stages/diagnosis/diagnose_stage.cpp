#include "stages/diagnosis/diagnosis.h"
#include "stages/schedule/full_parameters.h"
#include "stages/train/gradient_bound.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

// What each rank has in the first step of a run.
struct FirstStep {
  std::vector<FlatValues> gradients;  // shards, after the last backward pass
  std::vector<FlatValues> weights;    // in full, after the update
  double lr = 0;
};

FirstStep first_step(const TrainingSpec& spec) {
  FirstStep first;
  first.gradients.resize(size_t(spec.ranks));
  first.weights.resize(size_t(spec.ranks));
  TrainingCallbacks callbacks;
  callbacks.after_backward = [&](Trainer& t) {
    if (t.engine().is_gradient_accumulation_boundary())
      first.gradients[size_t(t.comm().rank())] = gradient_shards(t);
  };
  callbacks.on_step = [&](const StepRecord& step) { first.lr = step.lr; };
  callbacks.at_end = [&](Trainer& t) {
    first.weights[size_t(t.comm().rank())] = full_parameters(t.engine().stage());
  };
  run_training(spec, callbacks);
  return first;
}

}  // namespace

FlatValues full_parameters(Stage& stage) {
  FlatValues all;
  for (UnitState& u : stage.units()) {
    FlatValues unit(size_t(u.partition.full()), 0.0f);
    unshard(stage, u);
    for (size_t i = 0; i < u.unit->parameters.size(); ++i) {
      const auto values = kernel::download_floats(u.unit->parameters[i]->data);
      std::copy(values.begin(), values.end(), unit.begin() + u.partition.offset(i));
    }
    reshard(stage, u);
    all.insert(all.end(), unit.begin(), unit.end());
  }
  return all;
}

Diagnosis diagnose_stage(const TrainingSpec& spec) {
  const Options& o = spec.engine;
  if (spec.run_ranks || spec.weights || o.precision == Dtype::f16 || o.grad_accum_dtype ||
      o.communication_data_type || o.reproducible)
    return {};
  TrainingSpec once = spec;
  once.steps = 1;
  once.eval_every = once.device_memory = once.host_memory = 0;
  once.checkpoint = {};
  const FirstStep first = first_step(once);
  PlainTraining plain(once);
  const FlatLayout layout(plain.model().units(), spec.ranks);
  const double coarse = o.precision == Dtype::bf16 ? 2e-2 : 1e-4;
  const auto alone = plain.gradients_alone();
  const FlatValues before = plain.weights();
  const PlainStep right = plain.step(first.lr);
  for (int r = 0; r < spec.ranks; ++r)
    if (first.gradients[size_t(r)] != layout.shards(right.gradient, r))
      return diagnose_gradient({layout, alone, coarse}, first.gradients);
  const FlatValues after = plain.weights();
  return diagnose_weights({layout, before, after}, first.weights);
}

}  // namespace zl
