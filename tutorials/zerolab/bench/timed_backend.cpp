#include "tutorials/zerolab/bench/timed_backend.h"

#include <algorithm>
#include <ctime>
#include <utility>

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
    : owned_(std::move(timed)),
      inner_(owned_ ? *owned_ : cpu_backend()),
      clock_(clock),
      nothing_(clock == TimedBy::thread ? thread_clock() : 0) {}

void TimedBackend::begin() {
  calls_.clear();
  clocks_.clear();
  timing_ = true, announced_ = false, untimed_ = 0;
}

void TimedBackend::announce(const Event& kernel) {
  untimed_ += announced_;
  announced_ = timing_;
  next_ = {.event = kernel.what, .operations = kernel.count, .bytes = kernel.bytes};
}

const std::vector<TimedKernel>& TimedBackend::calls() {
  size_t call = calls_.size() - clocks_.size();
  for (const auto& clock : clocks_) calls_[call++].seconds = clock();
  clocks_.clear();
  return calls_;
}

template <class Work>
void TimedBackend::timed(std::string name, const Work& work, Stream stream) {
  if (!timing_) return work();
  TimedKernel call = std::exchange(announced_, false) ? std::move(next_) : TimedKernel();
  call.name = std::move(name);
  if (clock_ == TimedBy::thread) {
    const double begin = thread_seconds();
    work();
    call.seconds = thread_seconds() - begin - nothing_;
  } else {
    clocks_.push_back(inner_.timing(stream, std::cref(work)));
  }
  calls_.push_back(std::move(call));
}

#define ZL_TIMED(kernel, parameters, arguments)       \
  void TimedBackend::kernel parameters {              \
    timed(#kernel, [&] { inner_.kernel arguments; }); \
  }
ZL_TIMED(fill, (double value, T out), (value, out))
ZL_TIMED(copy, (T from, T to), (from, to))
ZL_TIMED(upload, (const void* host, T to), (host, to))
ZL_TIMED(download, (T from, void* host), (from, host))
ZL_TIMED(normal, (uint64_t seed, uint64_t stream, int64_t i, double mean, double deviation, T out),
         (seed, stream, i, mean, deviation, out))
ZL_TIMED(add, (T a, T b, T y), (a, b, y))
ZL_TIMED(accumulate, (T from, T into), (from, into))
ZL_TIMED(divide, (double divisor, T x), (divisor, x))
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
ZL_TIMED(quantize, (T x, const Quantized& to), (x, to))
ZL_TIMED(dequantize, (const Quantized& from, T x, Write write), (from, x, write))
#undef ZL_TIMED

void TimedBackend::ordered_sum(const OrderedSum& sum) {
  timed(
      "ordered_sum", [&] { inner_.ordered_sum(sum); }, Stream::communication);
}

void TimedBackend::move_bytes(const void* from, void* to, int64_t bytes) {
  timed(
      "move_bytes", [&] { inner_.move_bytes(from, to, bytes); }, Stream::communication);
}

std::unique_ptr<Transfer> TimedBackend::start_copy(T from, T to) {
  std::unique_ptr<Transfer> transfer;
  timed("copy", [&] { transfer = inner_.start_copy(from, to); });
  return transfer;
}

std::unique_ptr<HostCopy> TimedBackend::start_download(T from) {
  std::unique_ptr<HostCopy> copy;
  timed("download", [&] { copy = inner_.start_download(from); });
  return copy;
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

}  // namespace zl::cli
