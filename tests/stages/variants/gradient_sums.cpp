#include "tests/stages/variants/gradient_sums.h"

#include <cmath>
#include <cstring>
#include <mutex>

#include "dist/run_ranks.h"
#include "tensor/kernels.h"

namespace zl::test {
namespace {

void add_micro_batch(Stage& stage, const GradientSums& sums, int rank, int a) {
  for (UnitState& u : stage.units()) {
    stage.before_backward(u);
    std::vector<float> values(size_t(u.partition.full()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = float(sums.gradient(rank, a, int64_t(i)));
    if (stage.reduces_every_micro_batch()) {
      kernel::upload_floats(values, u.full_gradient);
      stage.reduce_gradient(u).wait();
      stage.after_reduce(u);
      continue;
    }
    const Tensor added =
        Tensor::empty(stage.memory(), MemoryUse::gradient, u.full_gradient.shape());
    kernel::upload_floats(values, added);
    kernel::accumulate(added, u.full_gradient);
    if (a + 1 < sums.micro_batches) continue;
    stage.reduce_gradient(u).wait();
    stage.after_reduce(u);
  }
}

}  // namespace

std::vector<std::vector<float>> reduced(const GradientSums& sums) {
  std::vector<std::vector<float>> units;
  std::mutex mutex;
  bool replicas_differ = false;
  run_ranks(sums.ranks, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    OddModel model({.hidden = 131, .tied = false});
    Options options = sums.options;
    options.stage = sums.stage;
    const auto stage = make_stage(model.units(), comm, memory, options);
    for (int a = 0; a < sums.micro_batches; ++a) add_micro_batch(*stage, sums, comm.rank(), a);
    for (UnitState& u : stage->units()) stage->reduce_across(u).wait();
    const std::lock_guard lock(mutex);
    units.resize(stage->units().size());
    for (size_t i = 0; i < units.size(); ++i) {
      const UnitState& u = stage->units()[i];
      if (units[i].empty()) units[i].assign(size_t(u.partition.full()), std::nanf(""));
      const std::vector<float> mine = kernel::download_floats(stage->gradient_shard(u));
      float* const at = units[i].data() + size_t(stage->shard_group().rank()) * mine.size();
      if (!std::isnan(*at) && std::memcmp(at, mine.data(), mine.size() * sizeof(float)) != 0)
        replicas_differ = true;
      std::ranges::copy(mine, at);
    }
  });
  if (replicas_differ) units.clear();
  return units;
}

}  // namespace zl::test
