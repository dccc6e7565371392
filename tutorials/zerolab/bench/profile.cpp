// The time of each kernel in a training step.

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/cpu/cpu_backend.h"
#include "tutorials/zerolab/bench/step.h"

namespace zl::cli {

using Json = nlohmann::ordered_json;

namespace {
using Clock = std::chrono::steady_clock;

// The CPU's kernels, with the time of each call. For one rank, on its own thread.
class TimingBackend final : public CpuBackend {
 public:
  void begin() { totals_ = {}, timing_ = true, announced_ = false, untimed_ = 0; }
  // Call it at each kernel event: the next call is that kernel's.
  void announce(const Event& kernel) {
    untimed_ += announced_;
    announced_ = timing_;
    operations_ = kernel.count, bytes_ = kernel.bytes;
  }
  int64_t untimed() const { return untimed_; }
  double seconds() const {  // [s] in all kernels since begin()
    double sum = 0;
    for (const auto& [name, total] : totals_) sum += total.seconds;
    return sum;
  }
  int64_t calls() const {
    int64_t sum = 0;
    for (const auto& [name, total] : totals_) sum += total.calls;
    return sum;
  }
  // The longest first. `seconds`: [s] of all `steps`.
  Json json(double steps, double seconds) const {
    std::vector<std::pair<std::string_view, Total>> all(totals_.begin(), totals_.end());
    std::ranges::stable_sort(all, std::greater(), [](const auto& a) { return a.second.seconds; });
    Json kernels = Json::array();
    for (const auto& [name, total] : all)
      kernels.push_back({{"kernel", name},
                         {"calls_per_step", double(total.calls) / steps},
                         {"seconds_per_step", total.seconds / steps},
                         {"share_of_step", total.seconds / seconds},
                         {"operations_per_step", double(total.operations) / steps},
                         {"bytes_per_step", double(total.bytes) / steps}});
    return kernels;
  }

  template <class Work>
  void timed(const char* name, const Work& work) {
    if (!timing_) return work();
    Total& total = totals_[name];
    const auto begin = Clock::now();
    work();
    total.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    ++total.calls;
    total.operations += std::exchange(operations_, 0);
    total.bytes += std::exchange(bytes_, 0);
    announced_ = false;
  }

#define ZL_TIMED(kernel, parameters, arguments)            \
  void kernel parameters override {                        \
    timed(#kernel, [&] { CpuBackend::kernel arguments; }); \
  }
  using T = const Tensor&;
  ZL_TIMED(fill, (double value, T out), (value, out))
  ZL_TIMED(copy, (T from, T to), (from, to))
  ZL_TIMED(upload, (const void* host, T to), (host, to))
  ZL_TIMED(download, (T from, void* host), (from, host))
  ZL_TIMED(normal,
           (uint64_t seed, uint64_t stream, int64_t i, double mean, double deviation, T out),
           (seed, stream, i, mean, deviation, out))
  ZL_TIMED(add, (T a, T b, T y), (a, b, y))
  ZL_TIMED(accumulate, (T from, T into), (from, into))
  ZL_TIMED(gelu, (T x, T y), (x, y))
  ZL_TIMED(gelu_backward, (T x, T dy, T dx, Write write), (x, dy, dx, write))
  ZL_TIMED(sum_rows, (T x, T out, T workspace), (x, out, workspace))
  ZL_TIMED(layer_norm, (const LayerNormSaved& s, T bias, double eps, T y), (s, bias, eps, y))
  ZL_TIMED(layer_norm_backward,
           (const LayerNormSaved& s, T dy, const LayerNormGradients& out, T workspace),
           (s, dy, out, workspace))
  ZL_TIMED(attention, (const AttentionSaved& s, T workspace), (s, workspace))
  ZL_TIMED(attention_backward, (const AttentionSaved& s, T dy, T dqkv, T workspace),
           (s, dy, dqkv, workspace))
  ZL_TIMED(embedding, (T ids, T table, T y), (ids, table, y))
  ZL_TIMED(embedding_backward, (T ids, T dy, T dt, T workspace), (ids, dy, dt, workspace))
  ZL_TIMED(add_positions, (T x, T table, T y), (x, table, y))
  ZL_TIMED(add_positions_backward, (T dy, T dt, T workspace), (dy, dt, workspace))
  ZL_TIMED(cross_entropy, (T logits, T targets, T loss, T workspace),
           (logits, targets, loss, workspace))
  ZL_TIMED(cross_entropy_backward, (T logits, T targets, T dloss, T dlogits),
           (logits, targets, dloss, dlogits))
  ZL_TIMED(adamw, (const AdamWUpdate& update), (update))
  ZL_TIMED(sgd, (const SgdUpdate& update), (update))
  ZL_TIMED(sums_of_squares, (std::span<const Tensor> xs, T out, T workspace), (xs, out, workspace))
  ZL_TIMED(squares_of_blocks, (T x, T out), (x, out))
  ZL_TIMED(ordered_sum, (const OrderedSum& sum), (sum))
  ZL_TIMED(move_bytes, (const void* from, void* to, int64_t bytes), (from, to, bytes))
#undef ZL_TIMED

  // A layer multiplies by its weight as stored in forward, by its transpose for the input's
  // gradient, and by the transposed input for the weight's gradient.
  void matmul(Factor a, Factor b, T bias, T out, Write write, T workspace) override {
    const char* name = a.transpose == Transpose::yes   ? "matmul Aᵀ·B"
                       : b.transpose == Transpose::yes ? "matmul A·Bᵀ"
                                                       : "matmul A·B";
    timed(name, [&] { CpuBackend::matmul(a, b, bias, out, write, workspace); });
  }

 private:
  struct Total {
    int64_t calls = 0, operations = 0, bytes = 0;
    double seconds = 0;
  };
  std::map<std::string_view, Total> totals_;
  bool timing_ = false, announced_ = false;
  int64_t operations_ = 0, bytes_ = 0;  // of the announced kernel
  int64_t untimed_ = 0;
};

// [s] per call, outside of the kernel's own time.
double clock_seconds() {
  constexpr int calls = 1000;
  std::vector<double> samples;
  for (int sample = 0; sample < 9; ++sample) {
    TimingBackend backend;
    backend.begin();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) backend.timed("nothing", [] {});
    const double all = std::chrono::duration<double>(Clock::now() - begin).count();
    samples.push_back((all - backend.seconds()) / calls);
  }
  return spread_of(std::move(samples)).median;
}

}  // namespace

template <>
Json profile_kernels(const StepPoint& point, const StepOptions& options) {
  GptTrainingSpec spec = one_rank(point.setup.spec);
  spec.engine.stage = StageKind::ddp;
  spec.steps = options.warm_up + options.timed;
  TimingBackend* kernels = nullptr;  // the rank's; it lives as long as the run
  spec.backends = [&](int) {
    auto made = std::make_unique<TimingBackend>();
    kernels = made.get();
    return RankBackends{.device = std::move(made)};
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
      const double all = kernels->seconds();
      seconds.push_back(record.seconds);
      sum += record.seconds;
      outside.push_back(1 - (all - std::exchange(before, all)) / record.seconds);
    }
    next();
    if (steps < spec.steps) return;
    profile["seconds_per_step"] = spread_of(seconds);
    profile["share_outside_kernels"] = spread_of(outside);
    profile["clock_seconds_per_step"] = clock_seconds() * double(kernels->calls()) / timed;
    profile["untimed_calls"] = kernels->untimed();
    profile["kernels"] = kernels->json(timed, sum);
  };
  run_training(spec, callbacks);
  progress.clear();
  return profile;
}

}  // namespace zl::cli
