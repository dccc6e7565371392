// A backend that times each kernel call of one rank.
//
// A GPU's clock is read after the step, so that the host launches kernels as ever. The time of a
// kernel that the GPU must wait for includes a part of its launch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/backend.h"
#include "tensor/events.h"

namespace zl::cli {

// The device's clock; or on a CPU the time in which the rank's thread had a core, which other
// programs do not make longer. All work of a kernel must then be on that thread.
enum class TimedBy { device, thread };

struct TimedKernel {
  std::string name;   // the kernel; a matmul's name says what it transposes, and M×N×K
  std::string event;  // what its event is called; "": it has none
  int64_t operations = 0, bytes = 0;
  double seconds = 0;
};

// For one rank, on its own thread.
class TimedBackend final : public Backend {
 public:
  // `timed`: null means the CPU's.
  explicit TimedBackend(std::unique_ptr<Backend> timed = nullptr, TimedBy clock = TimedBy::device);

  // From now on calls are timed; earlier ones are forgotten.
  void begin();
  // Call it at each kernel event: the next call is that kernel's.
  void announce(const Event& kernel);
  // Of a GPU: waits for them.
  const std::vector<TimedKernel>& calls();
  int64_t untimed() const { return untimed_; }  // events whose kernel was not timed

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
  std::function<double()> timing(Stream stream, const std::function<void()>& work) override {
    return inner_.timing(stream, work);
  }

  // The kernels.
  using T = const Tensor&;
  void fill(double value, T out) override;
  void copy(T from, T to) override;
  std::unique_ptr<Transfer> start_copy(T from, T to) override;
  void upload(const void* host, T to) override;
  void download(T from, void* host) override;
  std::unique_ptr<HostCopy> start_download(T from) override;
  void normal(uint64_t seed, uint64_t stream, int64_t i, double mean, double deviation,
              T out) override;
  void add(T a, T b, T y) override;
  void accumulate(T from, T into) override;
  void divide(double divisor, T x) override;
  void gelu(T x, T y) override;
  void gelu_backward(T x, T dy, T dx, Write write) override;
  void matmul(Factor a, Factor b, T bias, T out, Write write, T workspace) override;
  void sum_rows(T x, T out, T workspace) override;
  void layer_norm(const LayerNormSaved& saved, T bias, double eps, T y) override;
  void layer_norm_backward(const LayerNormSaved& saved, T dy, const LayerNormGradients& out,
                           T workspace) override;
  void attention(const AttentionSaved& saved, T workspace) override;
  void attention_backward(const AttentionSaved& saved, T dy, T dqkv, T workspace) override;
  void embedding(T ids, T table, T y) override;
  void embedding_backward(T ids, T dy, T dtable, T workspace) override;
  void add_positions(T x, T table, T y) override;
  void add_positions_backward(T dy, T dtable, T workspace) override;
  void cross_entropy(T logits, T targets, T loss, T workspace) override;
  void cross_entropy_backward(T logits, T targets, T dloss, T dlogits) override;
  void adamw(const AdamWUpdate& update) override;
  void sgd(const SgdUpdate& update) override;
  void sums_of_squares(std::span<const Tensor> xs, T out, T workspace) override;
  void squares_of_blocks(T x, T out) override;
  void quantize(T x, const Quantized& to) override;
  void dequantize(const Quantized& from, T x, Write write) override;
  void ordered_sum(const OrderedSum& sum) override;
  void move_bytes(const void* from, void* to, int64_t bytes) override;

 private:
  template <class Work>
  void timed(std::string name, const Work& work, Stream stream = Stream::compute);

  const std::unique_ptr<Backend> owned_;
  Backend& inner_;
  const TimedBy clock_;
  const double nothing_;  // [s] that the clock says of no work
  std::vector<TimedKernel> calls_;
  std::vector<std::function<double()>> clocks_;  // of the last calls, whose times are not read yet
  TimedKernel next_;                             // what is known of the announced kernel
  bool timing_ = false, announced_ = false;
  int64_t untimed_ = 0;
};

}  // namespace zl::cli
