#include "tutorials/exercises/grader/measure.h"

#include <chrono>

#include "dist/run_ranks.h"
#include "tensor/backend.h"
#include "tutorials/exercises/08_mixed_precision/mixed_precision.h"
#include "tutorials/exercises/08_mixed_precision/precision_case.h"

namespace zl::exercises {
namespace {

std::vector<double> numbers(std::span<const float> values) {
  return {values.begin(), values.end()};
}

std::vector<double> numbers(std::span<const f16> values) {
  std::vector<double> all;
  for (const f16 x : values) all.push_back(double(float(x)));
  return all;
}

// SGD, which keeps what it was given.
class RecordingOptimizer final : public ShardOptimizer {
 public:
  explicit RecordingOptimizer(float rate) : rate_(rate) {}
  void step(std::span<float> parameters, std::span<const float> gradient) override {
    ++calls;
    given = numbers(gradient);
    const size_t n = std::min(parameters.size(), gradient.size());
    for (size_t i = 0; i < n; ++i) parameters[i] -= rate_ * gradient[i];
  }
  int calls = 0;
  std::vector<double> given;

 private:
  float rate_;
};

using Numbers = std::map<std::string, std::vector<double>>;

void run_rank(const PrecisionCase& c, Communicator& comm, Numbers& record) {
  EventStream events(comm.rank());
  Memory memory({DeviceKind::cpu}, cpu_backend(), events);
  std::vector<float> initial;
  for (int64_t i = 0; i < c.n; ++i) initial.push_back(c.initial(comm.rank(), i));
  std::vector<f16> parameters(size_t(c.n)), gradient(size_t(c.n));
  RecordingOptimizer optimizer(c.rate());
  const PrecisionShard shard{initial, parameters, optimizer, comm, memory};
  PrecisionOptions options;
  options.initial_scale = c.scale;
  options.window = c.window;
  options.min_scale = c.min_scale;
  options.max_norm = c.max_norm;
  const auto precision = make_mixed_precision(shard, options);

  const auto state = [&](size_t step) {
    record["scale"].push_back(precision->loss_scale());
    record[str("master ", step)] = numbers(precision->master());
    record[str("parameters ", step)] = numbers(std::span<const f16>(parameters));
  };
  state(0);
  for (size_t step = 0; step < c.steps; ++step) {
    const double scale = precision->loss_scale();
    for (int64_t i = 0; i < c.n; ++i)
      gradient[size_t(i)] = c.scaled_gradient(comm.rank(), step, i, scale);
    optimizer.calls = 0;
    optimizer.given.clear();
    const PrecisionStep result = precision->step(gradient);
    record["norm"].push_back(result.norm);
    record["skipped"].push_back(result.skipped ? 1 : 0);
    record["calls"].push_back(optimizer.calls);
    record[str("gradient ", step)] = optimizer.given;
    state(step + 1);
  }
}

}  // namespace

// Names of numbers begin with the rank: "0 scale", "0 master 3".
Record measure(const std::string& check, const CheckOptions& options) {
  const PrecisionCase c = precision_case(check, options.seed);
  std::vector<Numbers> ranks(size_t(c.ranks));
  Record record;
  RankOptions limits;
  limits.timeout = std::chrono::seconds(3);
  try {
    run_ranks(
        c.ranks, [&](Communicator& comm) { run_rank(c, comm, ranks[size_t(comm.rank())]); },
        limits);
  } catch (const CommunicationError& e) {
    record.texts["communication"] = e.what();
  }
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const auto& [name, values] : ranks[r]) record.numbers[str(r, " ", name)] = values;
  return record;
}

}  // namespace zl::exercises
