#include "tutorials/exercises/judge/measure.h"

#include "tensor/backend.h"
#include "tutorials/exercises/08_mixed_precision/precision_case.h"

namespace zl::exercises {
namespace {

// SGD, which keeps what it was given.
struct RecordingOptimizer final : ShardOptimizer {
  void step(std::span<float> parameters, std::span<const float> gradient) override {
    ++calls;
    given.assign(gradient.begin(), gradient.end());
    for (size_t i = 0; i < std::min(parameters.size(), gradient.size()); ++i)
      parameters[i] -= kRate * gradient[i];
  }
  int calls = 0;
  Values given;
};

}  // namespace

// Of each rank "master 3" and others before step 3, or in it.
Record measure(const CheckOptions& options) {
  const PrecisionCase c = precision_case(options);
  return run_on_ranks(c.ranks, [&](Communicator& comm, Record& seen) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    const Values& values = c.initial[size_t(comm.rank())];
    const std::vector<float> initial(values.begin(), values.end());
    std::vector<f16> parameters(initial.size()), gradient(initial.size());
    RecordingOptimizer optimizer;
    const auto precision =
        make_mixed_precision({initial, parameters, optimizer, comm, memory}, c.options);
    for (size_t step = 0;; ++step) {
      const double scale = precision->loss_scale();
      seen.put(str("scale ", step), scale);
      seen.put(str("master ", step), precision->master());
      seen.put(str("parameters ", step), parameters);
      if (step == c.steps) return;
      for (size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = f16(float(scale * c.gradients[step][size_t(comm.rank())][i]));
      optimizer = {};
      const PrecisionStep result = precision->step(gradient);
      seen.put(str("norm ", step), result.norm);
      seen.put(str("skipped ", step), result.skipped);
      seen.put(str("calls ", step), optimizer.calls);
      seen.put(str("gradient ", step), optimizer.given);
    }
  });
}

}  // namespace zl::exercises
