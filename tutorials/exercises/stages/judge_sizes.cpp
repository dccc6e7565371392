#include "tutorials/exercises/stages/judge_sizes.h"

namespace zl::exercises {

std::string StageSizes::text(const StageCall& call) const {
  return has_unit(call.function) ? str(name(call.function), "(", names[size_t(call.unit)], ")")
                                 : name(call.function);
}

StageSizes sizes_of(const StageCase& c) {
  const auto data = course_data(c);
  const TrainingSpec spec = training_spec(c, *data);
  const auto model = spec.new_model();
  StageSizes s;
  for (const Unit& unit : model->units()) s.names.push_back(unit.name);
  s.full = padded_unit_sizes(model->units(), c.ranks);
  for (const int64_t n : s.full) s.total += n;
  s.element = int64_t(size_of(c.dtype));
  s.optimizer = optimizer_bytes(spec.engine.optimizer, c.dtype);
  s.prediction = predict({.options = spec.engine, .ranks = c.ranks, .units = s.full});
  return s;
}

int64_t right_growth(const StageCase& c, const StageSizes& s, const StageCall& call,
                     MemoryUse use) {
  const int64_t full = s.full[size_t(call.unit)], shard = full / c.ranks;
  const bool z2 = shards_gradient(c.stage), z3 = c.stage == StageKind::zero3;
  using F = StageFunction;
  if (use == MemoryUse::parameter) {
    if (call.function == F::allocate) return s.element * (z3 ? shard : full);
    if (z3 && call.function == F::unshard) return s.element * full;
    if (z3 && call.function == F::reshard) return -s.element * full;
  }
  if (use == MemoryUse::gradient) {
    if (call.function == F::allocate) return s.element * (z2 ? shard : full);
    if (z2 && call.function == F::before_backward) return s.element * full;
    if (z2 && call.function == F::after_reduce) return -s.element * full;
  }
  if (call.function != F::allocate) return 0;
  if (use == MemoryUse::optimizer_state) return s.optimizer.state * shard;
  if (use == MemoryUse::master_weights) return s.optimizer.master * shard;
  return 0;
}

std::string plain_name(MemoryUse use) {
  switch (use) {
    case MemoryUse::parameter: return "parameters";
    case MemoryUse::gradient: return "gradients";
    case MemoryUse::optimizer_state: return "optimizer state";
    case MemoryUse::master_weights: return "master weights";
    default: return name(use);
  }
}

}  // namespace zl::exercises
