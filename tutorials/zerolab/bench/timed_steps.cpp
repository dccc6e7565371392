#include "tutorials/zerolab/bench/timed_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "stages/predict/clock/kernel_time.h"
#include "tensor/error.h"
#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/bench/timed_backend.h"

namespace zl::cli {
namespace {

GptTrainingSpec spec_of(const RunSetup& setup, StageKind stage, const StepCount& count) {
  GptTrainingSpec spec = setup.spec;
  spec.engine.stage = stage;
  spec.steps = count.all();
  return spec;
}

// The calls of rank 0 in its timed steps.
class StepCalls {
 public:
  void add(std::vector<TimedKernel> calls) { steps_.push_back(std::move(calls)); }
  TimedStep medians() const {
    TimedStep step;
    for (size_t i = 0; i < steps_.front().size(); ++i) {
      const TimedKernel& first = steps_.front()[i];
      if (first.event.empty() || first.event == "transfer") continue;
      std::vector<double> seconds;
      for (const std::vector<TimedKernel>& calls : steps_) {
        require(calls.size() == steps_.front().size() && calls[i].event == first.event,
                "two steps call different kernels: ", calls[i].event, " and ", first.event);
        seconds.push_back(calls[i].seconds);
      }
      step.kernels.push_back({.name = first.event,
                              .operations = double(first.operations),
                              .bytes = double(first.bytes),
                              .seconds = spread_of(std::move(seconds)).median});
    }
    return step;
  }

 private:
  std::vector<std::vector<TimedKernel>> steps_;
};

}  // namespace

TimedStep time_kernels(const RunSetup& setup, const StepCount& count,
                       const std::function<void()>& begin_step) {
  GptTrainingSpec spec = spec_of(setup, StageKind::zero3, count);
  spec.engine.accumulation = 2;  // the second micro-batch adds to gradients
  const bool on_cpu = spec.device == DeviceKind::cpu;
  std::vector<TimedBackend*> kernels(size_t(spec.ranks));  // they live as long as the run
  spec.backends = [&kernels, on_cpu, inner = spec.backends](int rank) {
    RankBackends all = inner ? inner(rank) : RankBackends();
    auto timed = std::make_unique<TimedBackend>(std::move(all.device),
                                                on_cpu ? TimedBy::thread : TimedBy::device);
    kernels[size_t(rank)] = timed.get();
    all.device = std::move(timed);
    return all;
  };
  StepCalls calls;
  int64_t steps = 0;
  const auto next = [&] {
    if (steps < spec.steps) begin_step();
  };
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& training) {
    const int rank = training.comm().rank();
    TimedBackend& mine = *kernels[size_t(rank)];
    mine.begin();
    training.memory().events().listen([&mine](const Event& e) {
      if (e.kind == EventKind::kernel) mine.announce(e);
    });
    if (rank == 0) next();
  };
  callbacks.after_step = [&](Trainer& training) {
    const int rank = training.comm().rank();
    if (rank > 0) kernels[size_t(rank)]->begin();
  };
  callbacks.on_step = [&](const StepRecord&) {
    if (++steps > count.warm_up) calls.add(kernels[0]->calls());
    kernels[0]->begin();
    next();
  };
  run_training(spec, callbacks);
  return calls.medians();
}

double time_step(const RunSetup& setup, const StepCount& count,
                 const std::function<void()>& begin_step) {
  const GptTrainingSpec spec = spec_of(setup, StageKind::ddp, count);
  int64_t steps = 0;
  std::vector<double> seconds;
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& training) {
    if (training.comm().rank() == 0) begin_step();
  };
  callbacks.on_step = [&](const StepRecord& record) {
    if (++steps > count.warm_up) seconds.push_back(record.seconds);
    if (steps < spec.steps) begin_step();
  };
  run_training(spec, callbacks);
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 4];
}

// ---- points -------------------------------------------------------------------------------------

namespace {

constexpr size_t kMostPoints = 12;
constexpr double kSamePlace = 1.02;  // points whose places differ by less are one point
constexpr double kSaid = 0.04;       // a point is said by others that predict it so well

using Points = std::vector<KernelTimes::Point>;

double place(const std::string& kernel, const KernelTimes::Point& p) {
  return place_of(kernel, p.operations, p.bytes);
}

KernelTimes::Point mean(Points::const_iterator begin, Points::const_iterator end) {
  KernelTimes::Point sum;
  for (auto p = begin; p != end; ++p)
    sum = {sum.operations + p->operations, sum.bytes + p->bytes, sum.seconds + p->seconds};
  const double n = double(end - begin);
  return {sum.operations / n, sum.bytes / n, sum.seconds / n};
}

// Sorted; each point is the mean of those at its place. The three directions of a matmul have one
// place, and are as frequent as each other in a step.
Points by_place(const std::string& kernel, Points all) {
  std::ranges::sort(all, {}, [&](const auto& p) { return place(kernel, p); });
  Points merged;
  for (auto begin = all.cbegin(); begin != all.cend();) {
    const double limit = place(kernel, *begin) * kSamePlace;
    const auto end =
        std::find_if(begin, all.cend(), [&](const auto& p) { return place(kernel, p) > limit; });
    merged.push_back(mean(begin, end));
    begin = end;
  }
  return merged;
}

// How far the other points are from saying point i.
double error_without(const KernelTimes& times, size_t i) {
  const KernelTimes::Point left_out = times.points[i];
  RankMachine rank;
  rank.kernels = {times};
  rank.kernels[0].points.erase(rank.kernels[0].points.begin() + long(i));
  const double seconds = kernel_seconds(rank, {.kernel = times.kernel,
                                               .operations = left_out.operations,
                                               .bytes = left_out.bytes,
                                               .type = times.type,
                                               .ranks = times.ranks,
                                               .head = times.shape,
                                               .rows = times.shape});
  return std::abs(seconds / left_out.seconds - 1);
}

void thin(KernelTimes& times) {
  while (times.points.size() > 2) {
    size_t least = 1;
    double error = error_without(times, 1);
    for (size_t i = 2; i + 1 < times.points.size(); ++i)
      if (const double e = error_without(times, i); e < error) least = i, error = e;
    if (error > kSaid && times.points.size() <= kMostPoints) return;
    times.points.erase(times.points.begin() + long(least));
  }
}

double rounded(double value) {  // to 4 digits
  if (value == 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

}  // namespace

void KernelPoints::add(const TimedStep& step, int head, int rows) {
  for (const TimedStep::Kernel& k : step.kernels)
    points_[{k.name, shape_of({.kernel = k.name, .head = head, .rows = rows})}].push_back(
        {k.operations, k.bytes, std::max(k.seconds, 1e-9)});
}

std::vector<KernelTimes> KernelPoints::times(Dtype type, int ranks) const {
  std::vector<KernelTimes> all;
  for (const auto& [key, points] : points_) {
    KernelTimes times{.kernel = key.kernel,
                      .type = type,
                      .ranks = ranks,
                      .points = by_place(key.kernel, points),
                      .shape = key.shape};
    thin(times);
    for (KernelTimes::Point& p : times.points)
      p = {std::round(p.operations), std::round(p.bytes), rounded(p.seconds)};
    all.push_back(std::move(times));
  }
  return all;
}

}  // namespace zl::cli
