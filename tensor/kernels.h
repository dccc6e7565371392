// Calling kernels: checks shapes and types, takes workspace from the output's Memory, appends one
// event with the floating-point operations and bytes, then calls the backend. Everything above
// tensor/ goes through here.
//
// All of these throw std::invalid_argument when shapes or types do not fit, naming both sides, and
// OutOfMemory when workspace does not fit. Shapes: R rows, and the letters of tensor/shape.h.
#pragma once

#include "tensor/backend.h"

namespace zl::kernel {

// Names the random numbers of one parameter: which stream, how wide, around what.
struct NormalStream {
  uint64_t seed = 0, stream = 0;
  double mean = 0, deviation = 1;
};

void fill(double value, const Tensor& out);
void copy(const Tensor& from,
          const Tensor& to);  // same numel; casts between float types; from any memory to any
// Host values into a tensor of the same element type and count, and back.
template <class T>
void upload(std::span<const T> host, const Tensor& to);
template <class T>
std::vector<T> download(const Tensor& from);
// The same for fp32 on the host and any float type in the tensor.
void upload_floats(std::span<const float> host, const Tensor& to);
std::vector<float> download_floats(const Tensor& from);
// A scalar as the host sees it; meta answers `on_meta`, so that a dry run takes the full path of a
// step.
double read(const Tensor& scalar, double on_meta);
// Elements [first, first + numel) of the normal stream `stream`, times deviation plus mean.
void normal(const NormalStream& stream, int64_t first, const Tensor& out);

void add(const Tensor& a, const Tensor& b, const Tensor& y);  // y = a + b; y may be a
void accumulate(const Tensor& from,
                const Tensor& into);  // into += from; from another memory through workspace
void gelu(const Tensor& x,
          const Tensor& y);  // tanh form, Hendrycks & Gimpel 2016 (arXiv:1606.08415)
void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write);

// (M, K)(K, N) -> (M, N). A transposed operand is stored as (K, M) or (N, K). Leading dimensions
// beyond the last are rows: x (B, T, C) counts as (B*T, C).
void matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb, const Tensor& out,
            Write write = Write::set);
// The same with bias (N) added to every row of out, in one pass. b: (K, N), or transposed (N, K).
void matmul_bias(const Tensor& a, const Tensor& b, Transpose tb, const Tensor& bias,
                 const Tensor& out);
void sum_rows(const Tensor& x, const Tensor& out);  // out (N) += sum over the rows of x (…, N)

// y = (x - mean) * rstd * weight + bias per row. Ba et al. 2016 (arXiv:1607.06450), eq. 4. Writes
// saved.mean, saved.rstd.
void layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps, const Tensor& y);
void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                         const LayerNormGradients& out);

// Causal self-attention, scaled by 1/sqrt(D). Vaswani et al. 2017 (arXiv:1706.03762), eq. 1; the
// row statistics as in FlashAttention, Dao et al. 2022 (arXiv:2205.14135), algorithm 1. Writes
// saved.y and saved.log_sum_exp.
void attention(const AttentionSaved& saved);
void attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv);

void embedding(const Tensor& ids, const Tensor& table,
               const Tensor& y);  // ids (B, T) i32, table (V, C), y (B, T, C)
void embedding_backward(const Tensor& ids, const Tensor& dy,
                        const Tensor& dtable);  // dtable += ; rows in order
void add_positions(const Tensor& x, const Tensor& table,
                   const Tensor& y);  // x (B, T, C), table (>= T, C); y may be x
void add_positions_backward(const Tensor& dy, const Tensor& dtable);  // dtable += sum over B
void cross_entropy(const Tensor& logits, const Tensor& targets,
                   const Tensor& loss);  // (…, V), (…) i32, (1) f32
void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                            const Tensor& dlogits);

void adamw(const AdamWUpdate& update);
void sgd(const SgdUpdate& update);
void sum_of_squares(const Tensor& x, const Tensor& out);  // out (1) f64

}  // namespace zl::kernel
