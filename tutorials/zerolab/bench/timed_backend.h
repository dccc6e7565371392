// A backend that times each kernel call of one rank.
//
// A GPU's clock is read after the step, so that the host launches kernels as ever. The time of a
// kernel that the GPU must wait for includes a part of its launch.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/train/gpt_spec.h"

namespace zl::cli {

// A kernel on tensors of one size.
struct TimedKernel {
  std::string name;  // the kernel; a matmul's name says what it transposes, and M×N×K
  int64_t operations = 0, bytes = 0;  // as its event says; 0: it has none
  auto operator<=>(const TimedKernel&) const = default;
};
using KernelSeconds = std::map<TimedKernel, std::vector<double>>;  // [s] of each call

// The device's own clock; or the time in which a rank's thread had a core, of kernels on one thread
// of a CPU: other programs hardly change that.
enum class TimedBy { device, thread };

// For one rank, on its own thread. Not of stages that quantize: their kernels are not the
// backend's.
class TimedBackend final : public Backend {
 public:
  // `timed`: null means the CPU's.
  explicit TimedBackend(std::unique_ptr<Backend> timed = nullptr, TimedBy clock = TimedBy::device);

  // From now on calls are timed; earlier ones are forgotten.
  void begin();
  // Call it at each kernel event: the next call is that kernel's.
  void announce(const Event& kernel);
  // Of a GPU: waits for them.
  const KernelSeconds& calls();

  // Everything else is the timed backend's.
  const char* name() const override { return inner_.name(); }
  bool holds_data() const override { return inner_.holds_data(); }
  bool host_addressable() const override { return inner_.host_addressable(); }
  int64_t segment() const override { return inner_.segment(); }
  void* allocate(int64_t bytes) override { return inner_.allocate(bytes); }
  void release(void* segment, int64_t bytes) noexcept override { inner_.release(segment, bytes); }
  void poison(void* block, int64_t bytes) noexcept override { inner_.poison(block, bytes); }
  int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype type) const override {
    return inner_.workspace(kernel, dims, type);
  }
  int64_t padded_columns(int64_t n) const override { return inner_.padded_columns(n); }
  int64_t host_waits() const override { return inner_.host_waits(); }
  std::shared_ptr<const StreamEvent> record_event(Stream stream) override {
    return inner_.record_event(stream);
  }
  void wait_event(Stream stream, const StreamEvent* event) override {
    inner_.wait_event(stream, event);
  }
  void synchronize() override { inner_.synchronize(); }
  void select_for_this_thread() override { inner_.select_for_this_thread(); }
  void* native_stream(Stream stream) override { return inner_.native_stream(stream); }

  // The kernels: a matmul's name has its sizes, all others have their own.
  using T = const Tensor&;
  void matmul(Factor a, Factor b, T bias, T out, Write write, T workspace) override;
  std::function<const void*()> start_download(T from) override {
    std::function<const void*()> copy;
    timed("download", [&] { copy = inner_.start_download(from); });
    return copy;
  }
#define ZL_TIMED_ON(stream, kernel, parameters, arguments)          \
  void kernel parameters override {                                 \
    timed(                                                          \
        #kernel, [&] { inner_.kernel arguments; }, Stream::stream); \
  }
#define ZL_TIMED(kernel, parameters, arguments) ZL_TIMED_ON(compute, kernel, parameters, arguments)
  ZL_TIMED(fill, (double value, T out), (value, out))
  ZL_TIMED(copy, (T from, T to), (from, to))
  ZL_TIMED(upload, (const void* host, T to), (host, to))
  ZL_TIMED(download, (T from, void* host), (from, host))
  ZL_TIMED(normal, (uint64_t seed, uint64_t stream, int64_t i, double mean, double sigma, T out),
           (seed, stream, i, mean, sigma, out))
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
  void update_parameters(const OptimizerUpdate& update) override {
    timed(zl::name(update.config.kind), [&] { inner_.update_parameters(update); });
  }
  ZL_TIMED(sums_of_squares, (std::span<const Tensor> xs, T out, T workspace), (xs, out, workspace))
  ZL_TIMED(squares_of_blocks, (T x, T out), (x, out))
  ZL_TIMED_ON(communication, ordered_sum, (const OrderedSum& sum), (sum))
  ZL_TIMED_ON(communication, move_bytes, (const void* from, void* to, int64_t n), (from, to, n))
#undef ZL_TIMED
#undef ZL_TIMED_ON

 private:
  void timed(std::string name, const std::function<void()>& work, Stream stream = Stream::compute);

  const std::unique_ptr<Backend> owned_;
  Backend& inner_;
  const TimedBy clock_;
  KernelSeconds calls_;
  // The last calls, whose times are not read yet.
  std::vector<std::pair<TimedKernel, std::function<double()>>> clocks_;
  TimedKernel next_;  // what is known of an announced kernel
  bool timing_ = false;
};

// Training steps of rank 0, where caches and memory are as in a run.
struct TimedSteps {
  std::vector<double> seconds;  // of each whole step
  KernelSeconds calls;          // in all of them
};

// Trains as `spec` says, and returns the steps after the first `warm_up`. Rethrows any error of a
// rank.
TimedSteps time_kernels(GptTrainingSpec spec, int64_t warm_up, TimedBy clock = TimedBy::device);

}  // namespace zl::cli
