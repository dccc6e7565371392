// The time of each kernel in a training step.

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tutorials/zerolab/bench/step.h"
#include "tutorials/zerolab/bench/timed_backend.h"

namespace zl::cli {

using Json = nlohmann::ordered_json;

namespace {
using Clock = std::chrono::steady_clock;

double seconds_in(TimedBackend& kernels) {  // [s] since begin()
  double sum = 0;
  for (const TimedKernel& call : kernels.calls()) sum += call.seconds;
  return sum;
}

// The longest first. `seconds`: [s] of all `steps`.
Json kernels_json(TimedBackend& kernels, double steps, double seconds) {
  struct Total {
    int64_t calls = 0, operations = 0, bytes = 0;
    double seconds = 0;
  };
  std::map<std::string_view, Total> totals;
  for (const TimedKernel& call : kernels.calls()) {
    Total& total = totals[call.name];
    ++total.calls;
    total.operations += call.operations;
    total.bytes += call.bytes;
    total.seconds += call.seconds;
  }
  std::vector<std::pair<std::string_view, Total>> all(totals.begin(), totals.end());
  std::ranges::stable_sort(all, std::greater(), [](const auto& a) { return a.second.seconds; });
  Json json = Json::array();
  for (const auto& [name, total] : all)
    json.push_back({{"kernel", name},
                    {"calls_per_step", double(total.calls) / steps},
                    {"seconds_per_step", total.seconds / steps},
                    {"share_of_step", total.seconds / seconds},
                    {"operations_per_step", double(total.operations) / steps},
                    {"bytes_per_step", double(total.bytes) / steps}});
  return json;
}

// [s] per call, outside of the kernel's own time. Forgets the calls of `backend`.
double clock_seconds(TimedBackend& backend) {
  constexpr int calls = 1000;
  std::vector<double> samples;
  for (int sample = 0; sample < 9; ++sample) {
    backend.begin();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) backend.move_bytes(nullptr, nullptr, 0);
    const double all = std::chrono::duration<double>(Clock::now() - begin).count();
    samples.push_back((all - seconds_in(backend)) / calls);
  }
  return spread_of(std::move(samples)).median;
}

}  // namespace

template <>
Json profile_kernels(const StepPoint& point, const StepOptions& options) {
  GptTrainingSpec spec = one_rank(point.setup.spec);
  spec.engine.stage = StageKind::ddp;
  spec.steps = options.warm_up + options.timed;
  TimedBackend* kernels = nullptr;  // the rank's; it lives as long as the run
  spec.backends = [&kernels, inner = spec.backends](int rank) {
    RankBackends all = inner ? inner(rank) : RankBackends();
    auto made = std::make_unique<TimedBackend>(std::move(all.device));
    kernels = made.get();
    all.device = std::move(made);
    return all;
  };
  Progress progress(spec.steps, options.quiet);
  const double timed = double(options.timed);
  int64_t steps = 0;
  double before = 0, sum = 0;            // [s] in kernels, in all timed steps
  std::vector<double> seconds, outside;  // of each timed step: [s], share outside of kernels
  Json profile{{"stage", "ddp"}, {"ranks", 1}, {"steps", options.timed}};
  const auto next = [&] {
    if (steps == options.warm_up) kernels->begin();
    if (steps < spec.steps) progress.item(str("profile, step ", steps + 1));
  };
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& training) {
    training.memory().events().listen([&](const Event& e) {
      if (e.kind == EventKind::kernel) kernels->announce(e);
    });
    next();
  };
  callbacks.on_step = [&](const StepRecord& record) {
    if (++steps > options.warm_up) {
      const double all = seconds_in(*kernels);
      seconds.push_back(record.seconds);
      sum += record.seconds;
      outside.push_back(1 - (all - std::exchange(before, all)) / record.seconds);
    }
    next();
    if (steps < spec.steps) return;
    profile["seconds_per_step"] = spread_of(seconds);
    profile["share_outside_kernels"] = spread_of(outside);
    profile["untimed_calls"] = kernels->untimed();
    profile["kernels"] = kernels_json(*kernels, timed, sum);
    const double calls = double(kernels->calls().size());
    profile["clock_seconds_per_step"] = clock_seconds(*kernels) * calls / timed;
  };
  run_training(spec, callbacks);
  progress.clear();
  return profile;
}

}  // namespace zl::cli
