#include "tutorials/zerolab/bench/timed_backend.h"

#include <algorithm>
#include <ctime>

namespace zl::cli {
namespace {

double thread_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// [s] What two readings of that clock say of no work at all: the system takes as long to answer.
double thread_clock() {
  double least = 1;
  for (int i = 0; i < 100; ++i) {
    const double begin = thread_seconds();
    least = std::min(least, thread_seconds() - begin);
  }
  return least;
}

}  // namespace

TimedBackend::TimedBackend(std::unique_ptr<Backend> timed, TimedBy clock)
    : owned_(std::move(timed)), inner_(owned_ ? *owned_ : cpu_backend()), clock_(clock) {}

void TimedBackend::begin() {
  calls_.clear();
  clocks_.clear();
  timing_ = true, next_ = {};
}

void TimedBackend::announce(const Event& kernel) {
  next_ = {.operations = kernel.count, .bytes = kernel.bytes};
}

const KernelSeconds& TimedBackend::calls() {
  for (const auto& [call, clock] : std::exchange(clocks_, {})) calls_[call].push_back(clock());
  return calls_;
}

void TimedBackend::timed(std::string name, const std::function<void()>& work, Stream stream) {
  if (!timing_) return work();
  TimedKernel call = std::exchange(next_, {});
  call.name = std::move(name);
  if (clock_ == TimedBy::device) {
    clocks_.emplace_back(std::move(call), inner_.timing(stream, work));
    return;
  }
  static const double nothing = thread_clock();
  const double begin = thread_seconds();
  work();
  calls_[std::move(call)].push_back(thread_seconds() - begin - nothing);
}

// A layer multiplies by its weight as stored in forward, by its transpose for the input's gradient,
// and by the transposed input for the weight's gradient.
void TimedBackend::matmul(Factor a, Factor b, T bias, T out, Write write, T workspace) {
  const char* name = a.transpose == Transpose::yes   ? "matmul Aᵀ·B"
                     : b.transpose == Transpose::yes ? "matmul A·Bᵀ"
                                                     : "matmul A·B";
  const bool turned = b.transpose == Transpose::yes;
  const int64_t n = turned ? b.tensor.rows() : b.tensor.dim(-1),
                k = turned ? b.tensor.dim(-1) : b.tensor.rows();
  timed(str(name, " ", out.rows(), "×", n, "×", k),
        [&] { inner_.matmul(a, b, bias, out, write, workspace); });
}

TimedSteps time_kernels(GptTrainingSpec spec, int64_t warm_up, TimedBy clock) {
  TimedBackend* first = nullptr;  // rank 0's, which lives as long as the run
  spec.backends = [&first, clock, inner = spec.backends](int rank) {
    RankBackends all = inner ? inner(rank) : RankBackends();
    if (rank > 0) return all;
    auto timed = std::make_unique<TimedBackend>(std::move(all.device), clock);
    first = timed.get();
    all.device = std::move(timed);
    return all;
  };
  TimedSteps steps;
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& training) {
    if (training.comm().rank() > 0) return;
    first->begin();
    training.memory().events().listen([first](const Event& e) {
      if (e.kind == EventKind::kernel) first->announce(e);
    });
  };
  callbacks.on_step = [&](const StepRecord& record) {
    if (record.step <= warm_up) return first->begin();
    steps.seconds.push_back(record.seconds);
    steps.calls = first->calls();
  };
  run_training(spec, callbacks);
  return steps;
}

}  // namespace zl::cli
