#include "tutorials/exercises/judge/measure.h"

#include <algorithm>

#include "tensor/backend.h"
#include "tutorials/exercises/08_mixed_precision/mixed_precision.h"
#include "tutorials/exercises/08_mixed_precision/precision_case.h"

namespace zl::exercises {
namespace {

// SGD, which keeps what it was given.
class RecordingOptimizer final : public ShardOptimizer {
 public:
  explicit RecordingOptimizer(float rate) : rate_(rate) {}
  void step(std::span<float> parameters, std::span<const float> gradient) override {
    ++calls;
    given.assign(gradient.begin(), gradient.end());
    for (size_t i = 0; i < std::min(parameters.size(), gradient.size()); ++i)
      parameters[i] -= rate_ * gradient[i];
  }
  int calls = 0;
  Values given;

 private:
  float rate_;
};

void run_rank(const PrecisionCase& c, Communicator& comm, Record& seen) {
  Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
  std::vector<float> initial;
  for (int64_t i = 0; i < c.n; ++i) initial.push_back(c.initial(comm.rank(), i));
  std::vector<f16> parameters(size_t(c.n)), gradient(size_t(c.n));
  RecordingOptimizer optimizer(c.rate);
  const auto precision = make_mixed_precision({initial, parameters, optimizer, comm, memory},
                                              {.initial_scale = c.scale,
                                               .window = c.window,
                                               .min_scale = c.min_scale,
                                               .max_norm = c.max_norm});
  for (size_t step = 0;; ++step) {
    const auto put = [&](const char* name, const auto& values) {
      seen.put(str(name, " ", step), values);
    };
    const double scale = precision->loss_scale();
    put("scale", scale);
    put("master", precision->master());
    put("parameters", parameters);
    if (step == c.steps) return;
    for (int64_t i = 0; i < c.n; ++i)
      gradient[size_t(i)] = c.scaled_gradient(comm.rank(), step, i, scale);
    optimizer.calls = 0;
    optimizer.given.clear();
    const PrecisionStep result = precision->step(gradient);
    put("norm", result.norm);
    put("skipped", double(result.skipped));
    put("calls", double(optimizer.calls));
    put("gradient", optimizer.given);
  }
}

}  // namespace

// Of each rank "master 3" and others before step 3, or in it.
Record measure(const CheckOptions& options) {
  const PrecisionCase c = precision_case(options);
  return run_on_ranks(c.ranks, [&](Communicator& comm, Record& seen) { run_rank(c, comm, seen); });
}

}  // namespace zl::exercises
