// Calls of kernels. Each function checks shapes and types, takes workspace from the output's
// Memory, appends one event with the floating-point operations and bytes, then calls the backend.
// All code outside tensor/ calls kernels through these functions.
//
// All throw std::invalid_argument if shapes or types do not fit, naming both sides, and OutOfMemory
// if workspace does not fit. Shapes: R rows, and the letters of tensor/shape.h.
#pragma once

#include "tensor/backend.h"

namespace zl::kernel {

// The random numbers of one parameter: normal with this mean and standard deviation.
struct NormalStream {
  uint64_t seed = 0, stream = 0;
  double mean = 0, deviation = 1;
};

void fill(double value, const Tensor& out);
// Same numel. Casts between float types; the tensors may belong to different memories. This and
// accumulate() count moves of model state (tensor/moves.h).
void copy(const Tensor& from, const Tensor& to);
// The same for tensors of one type. A copy from or to the disk is in flight until it is waited for.
[[nodiscard]] std::future<void> start_copy(const Tensor& from, const Tensor& to);
// n host values of a type into a tensor of the same type and count, and back.
void upload(Dtype type, const void* host, int64_t n, const Tensor& to);
void download(Dtype type, const Tensor& from, void* host);
template <class T>
void upload(std::span<const T> host, const Tensor& to) {
  upload(dtype_of<T>, host.data(), int64_t(host.size()), to);
}
template <class T>
std::vector<T> download(const Tensor& from) {
  std::vector<T> host(size_t(from.numel()));
  download(dtype_of<T>, from, host.data());
  return host;
}
// The same for fp32 on the host and any float type in the tensor.
void upload_floats(std::span<const float> host, const Tensor& to);
std::vector<float> download_floats(const Tensor& from);
// A copy of f32 or f64 to the host that is in flight; on meta all elements are 0. Of either type
// wait() returns f64.
class Download {
 public:
  Download() = default;
  const std::vector<double>& wait();  // by element; waits for the device at most once

 private:
  friend Download start_download(const Tensor& from);
  std::function<const void*()> copy_;
  bool is_f32_ = false;
  std::vector<double> values_;
};
// Starts a download after all earlier work of the device, without waiting.
Download start_download(const Tensor& from);
// The value of a scalar; 0 on meta.
double read(const Tensor& scalar);
// Elements [first, first + numel) of the normal stream; with deviation 0 it is fill(mean).
void normal(const NormalStream& stream, int64_t first, const Tensor& out);

void add(const Tensor& a, const Tensor& b, const Tensor& y);  // y = a + b; y may be a
// into += from. A tensor of another memory is copied into workspace first.
void accumulate(const Tensor& from, const Tensor& into);
// tanh form, Hendrycks & Gimpel 2016 (arXiv:1606.08415)
void gelu(const Tensor& x, const Tensor& y);
void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write);

// (M, K)(K, N) -> (M, N). A transposed operand is stored as (K, M) or (N, K). All dimensions but
// the last are rows: x (B, T, C) counts as (B*T, C). bias (N) is added to every row of out in the
// same pass; it may be undefined, and must be with Write::add.
void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write = Write::set);
void sum_rows(const Tensor& x, const Tensor& out);  // out (N) += sum over the rows of x (…, N)

// y = (x - mean) * rstd * weight + bias per row. Ba et al. 2016 (arXiv:1607.06450), eq. 4.
// Writes mean, rstd.
void layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps, const Tensor& y);
void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                         const LayerNormGradients& out);

// Causal self-attention, scaled by 1/sqrt(D). Vaswani et al. 2017 (arXiv:1706.03762), eq. 1; row
// statistics as in FlashAttention, Dao et al. 2022 (arXiv:2205.14135), algorithm 1. Writes saved.y
// and saved.log_sum_exp.
void attention(const AttentionSaved& saved);
void attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv);

// ids (B, T) i32, table (V, C), y (B, T, C)
void embedding(const Tensor& ids, const Tensor& table, const Tensor& y);
// dtable += the sum of each token's rows of dy, in their order, in the compute type
void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable);
// x (B, T, C), table (at least T, C); y may be x
void add_positions(const Tensor& x, const Tensor& table, const Tensor& y);
void add_positions_backward(const Tensor& dy, const Tensor& dtable);  // dtable += sum over B
// logits (…, V), targets (…) i32, loss (1) compute type: the mean over rows
void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss);
void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                            const Tensor& dlogits);

// The events have the name of the optimizer.
void update_parameters(const OptimizerUpdate& update);
void sum_of_squares(const Tensor& x, const Tensor& out);  // out (1) f64
// The same of each of several tensors of one type and memory, at once: out (as many) f64.
void sums_of_squares(std::span<const Tensor> xs, const Tensor& out);
// The sum of squares of every 1,024 elements: x (n), out (ceil(n / 1024)) f64.
inline constexpr int64_t kSquaresBlock = 1024;  // [n]
void squares_of_blocks(const Tensor& x, const Tensor& out);

}  // namespace zl::kernel
