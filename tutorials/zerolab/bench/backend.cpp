#include "tutorials/zerolab/bench/backend.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tutorials/zerolab/bench/measure.h"

namespace zl::cli {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void* CountingBackend::allocate(int64_t bytes) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return CpuBackend::allocate(bytes);
}

class TimingBackend::Call {
 public:
  Call(TimingBackend& backend, Slot slot)
      : backend_(backend), total_(backend.totals_[size_t(slot)]) {}
  Call(const Call&) = delete;
  ~Call() {
    if (!backend_.timing_) return;
    total_.nanoseconds +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count();
    ++total_.calls;
    total_.operations += std::exchange(backend_.operations_, 0);
    total_.bytes += std::exchange(backend_.bytes_, 0);
    backend_.announced_ = false;
  }

 private:
  TimingBackend& backend_;
  Total& total_;
  Clock::time_point begin_ = Clock::now();  // the last to be initialised
};

const char* TimingBackend::name(Slot slot) {
  constexpr const char* names[] = {"fill",
                                   "copy",
                                   "upload",
                                   "download",
                                   "normal",
                                   "add",
                                   "accumulate",
                                   "gelu",
                                   "gelu_backward",
                                   "matmul A·B",
                                   "matmul A·Bᵀ",
                                   "matmul Aᵀ·B",
                                   "sum_rows",
                                   "layer_norm",
                                   "layer_norm_backward",
                                   "attention",
                                   "attention_backward",
                                   "embedding",
                                   "embedding_backward",
                                   "add_positions",
                                   "add_positions_backward",
                                   "cross_entropy",
                                   "cross_entropy_backward",
                                   "adamw",
                                   "sgd",
                                   "sum_of_squares",
                                   "ordered_sum",
                                   "move_bytes"};
  static_assert(std::size(names) == size_t(Slot::count));
  return names[size_t(slot)];
}

void TimingBackend::announce(const Event& kernel) {
  if (!timing_) return;
  uncalled_ += announced_;
  announced_ = true;
  operations_ = kernel.count;
  bytes_ = kernel.bytes;
}

double TimingBackend::seconds_in_kernels() const {
  int64_t nanoseconds = 0;
  for (const Total& total : totals_) nanoseconds += total.nanoseconds;
  return 1e-9 * double(nanoseconds);
}

std::vector<KernelTotal> TimingBackend::totals() const {
  std::vector<KernelTotal> all;
  for (size_t i = 0; i < totals_.size(); ++i)
    if (const Total& t = totals_[i]; t.calls > 0)
      all.push_back({name(Slot(i)), t.calls, t.operations, t.bytes, 1e-9 * double(t.nanoseconds)});
  std::ranges::stable_sort(all, std::greater(), &KernelTotal::seconds);
  return all;
}

double TimingBackend::clock_seconds() {
  constexpr int calls = 1000;
  std::vector<double> samples;
  std::atomic<int64_t> allocations = 0;
  for (int sample = 0; sample < 9; ++sample) {
    TimingBackend backend(allocations);
    backend.begin();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) const Call call(backend, Slot::fill);
    const double all = std::chrono::duration<double>(Clock::now() - begin).count();
    samples.push_back((all - backend.seconds_in_kernels()) / calls);
  }
  return spread_of(std::move(samples)).median;
}

void TimingBackend::fill(double value, const Tensor& out) {
  const Call call(*this, Slot::fill);
  CpuBackend::fill(value, out);
}

void TimingBackend::copy(const Tensor& from, const Tensor& to) {
  const Call call(*this, Slot::copy);
  CpuBackend::copy(from, to);
}

void TimingBackend::upload(const void* host, const Tensor& to) {
  const Call call(*this, Slot::upload);
  CpuBackend::upload(host, to);
}

void TimingBackend::download(const Tensor& from, void* host) {
  const Call call(*this, Slot::download);
  CpuBackend::download(from, host);
}

void TimingBackend::normal(uint64_t seed, uint64_t stream, int64_t first, double mean,
                           double deviation, const Tensor& out) {
  const Call call(*this, Slot::normal);
  CpuBackend::normal(seed, stream, first, mean, deviation, out);
}

void TimingBackend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  const Call call(*this, Slot::add);
  CpuBackend::add(a, b, y);
}

void TimingBackend::accumulate(const Tensor& from, const Tensor& into) {
  const Call call(*this, Slot::accumulate);
  CpuBackend::accumulate(from, into);
}

void TimingBackend::gelu(const Tensor& x, const Tensor& y) {
  const Call call(*this, Slot::gelu);
  CpuBackend::gelu(x, y);
}

void TimingBackend::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                                  Write write) {
  const Call call(*this, Slot::gelu_backward);
  CpuBackend::gelu_backward(x, dy, dx, write);
}

void TimingBackend::matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
                           const Tensor& workspace) {
  // As a layer calls it: the weight as it is stored forward, the other way round to the input, the
  // input so to the weight.
  const Slot slot = a.transpose == Transpose::yes   ? Slot::matmul_weight
                    : b.transpose == Transpose::yes ? Slot::matmul_input
                                                    : Slot::matmul;
  const Call call(*this, slot);
  CpuBackend::matmul(a, b, bias, out, write, workspace);
}

void TimingBackend::sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) {
  const Call call(*this, Slot::sum_rows);
  CpuBackend::sum_rows(x, out, workspace);
}

void TimingBackend::layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                               const Tensor& y) {
  const Call call(*this, Slot::layer_norm);
  CpuBackend::layer_norm(saved, bias, eps, y);
}

void TimingBackend::layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                                        const LayerNormGradients& out, const Tensor& workspace) {
  const Call call(*this, Slot::layer_norm_backward);
  CpuBackend::layer_norm_backward(saved, dy, out, workspace);
}

void TimingBackend::attention(const AttentionSaved& saved, const Tensor& workspace) {
  const Call call(*this, Slot::attention);
  CpuBackend::attention(saved, workspace);
}

void TimingBackend::attention_backward(const AttentionSaved& saved, const Tensor& dy,
                                       const Tensor& dqkv, const Tensor& workspace) {
  const Call call(*this, Slot::attention_backward);
  CpuBackend::attention_backward(saved, dy, dqkv, workspace);
}

void TimingBackend::embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  const Call call(*this, Slot::embedding);
  CpuBackend::embedding(ids, table, y);
}

void TimingBackend::embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                       const Tensor& workspace) {
  const Call call(*this, Slot::embedding_backward);
  CpuBackend::embedding_backward(ids, dy, dtable, workspace);
}

void TimingBackend::add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  const Call call(*this, Slot::add_positions);
  CpuBackend::add_positions(x, table, y);
}

void TimingBackend::add_positions_backward(const Tensor& dy, const Tensor& dtable,
                                           const Tensor& workspace) {
  const Call call(*this, Slot::add_positions_backward);
  CpuBackend::add_positions_backward(dy, dtable, workspace);
}

void TimingBackend::cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                                  const Tensor& workspace) {
  const Call call(*this, Slot::cross_entropy);
  CpuBackend::cross_entropy(logits, targets, loss, workspace);
}

void TimingBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                           const Tensor& dloss, const Tensor& dlogits) {
  const Call call(*this, Slot::cross_entropy_backward);
  CpuBackend::cross_entropy_backward(logits, targets, dloss, dlogits);
}

void TimingBackend::adamw(const AdamWUpdate& update) {
  const Call call(*this, Slot::adamw);
  CpuBackend::adamw(update);
}

void TimingBackend::sgd(const SgdUpdate& update) {
  const Call call(*this, Slot::sgd);
  CpuBackend::sgd(update);
}

void TimingBackend::sum_of_squares(const Tensor& x, const Tensor& out, const Tensor& workspace) {
  const Call call(*this, Slot::sum_of_squares);
  CpuBackend::sum_of_squares(x, out, workspace);
}

void TimingBackend::ordered_sum(const OrderedSum& sum) {
  const Call call(*this, Slot::ordered_sum);
  CpuBackend::ordered_sum(sum);
}

void TimingBackend::move_bytes(const void* from, void* to, int64_t bytes) {
  const Call call(*this, Slot::move_bytes);
  CpuBackend::move_bytes(from, to, bytes);
}

}  // namespace zl::cli
