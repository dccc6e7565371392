// Causal attention: Vaswani et al. 2017 (arXiv:1706.03762), equation 1. Each head has T queries, T
// keys and T values of D channels: the rows of Q, K and V, which are T by D.
//
//   S = Q K^T / sqrt(D)      T by T: the score of query i for key j; minus infinity where j > i,
//                            because key j is a later token
//   P = softmax of each row  P_ij = exp(S_ij) / sum_k exp(S_ik) = exp(S_ij - L_i)
//   Y = P V                  T by D: row i is the mean of the values, weighted by row i of P
//
// Forward keeps L_i = log sum_k exp(S_ik), T numbers of a head, instead of P, which has T * T.
// Backward computes P again from S and L.
//
// Backward: given dY, what are dQ, dK and dV? Here dX is the gradient of the loss with respect to
// X.
//
//   Y_ic = sum_j P_ij V_jc is a product, so dV = P^T dY and dP = dY V^T (matmul.cpp).
//   Adding a small e to S_ij multiplies the numerator of P_ij by 1 + e, and the sum that row i is
//   divided by, by 1 + e P_ij. So P_ij gains e P_ij, and then every P_ik, k = j included, loses
//   e P_ij P_ik. The chain rule adds up what these changes do to the loss:
//     dS_ij = P_ij dP_ij - sum_k P_ij P_ik dP_ik = P_ij (dP_ij - sum_k P_ik dP_ik)
//   which is P_ij times the amount by which dP_ij exceeds the mean of row i of dP, weighted by P.
//   Above the diagonal P_ij = 0, so dS_ij = 0.
//   S = Q K^T / sqrt(D) is a product, so dQ = dS K / sqrt(D) and dK = dS^T Q / sqrt(D).
//
// The heads are computed one after another, in the same workspace: 4 T D + T T elements of the
// compute type forward, 7 T D + 2 T T backward. tensor/cpu and tensor/cuda go tile by tile, and
// need no T by T matrix.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "tensor/reference/kernel_call.h"
#include "tensor/reference/product.h"

namespace zl {
namespace {

using reference::Matrix;
using reference::product;
using reference::transposed;

// B, T, H, D
std::array<int64_t, 4> checked_dims(const char* what, const AttentionSaved& s) {
  if (s.qkv.shape().size() != 3 || s.qkv.dim(2) % 3 != 0)
    refuse(what, ": qkv must be (B, T, 3C), not ", to_string(s.qkv.shape()));
  const int64_t B = s.qkv.dim(0), T = s.qkv.dim(1), C = s.qkv.dim(2) / 3;
  if (s.heads <= 0 || C % s.heads != 0)
    refuse(what, ": ", C, " channels cannot be split into ", s.heads, " heads");
  kernel::require_is(what, "y", s.y, B * T * C, s.qkv.dtype());
  kernel::require_is(what, "row statistics", s.log_sum_exp, B * s.heads * T,
                     compute_type(s.qkv.dtype()));
  return {B, T, s.heads, C / s.heads};
}

// One head of one sequence. Its matrices are in the workspace, in the compute type.
template <class S>
struct Head {
  using F = Compute<S>;
  const AttentionSaved& saved;
  int64_t b, h;  // the sequence, and the head of its H
  F* workspace;  // what is left
  int64_t T = saved.qkv.dim(1), H = saved.heads, D = saved.qkv.dim(2) / 3 / H;

  // The next matrix of T rows.
  Matrix<F> take(int64_t columns) {
    F* const data = std::exchange(workspace, workspace + T * columns);
    return {data, T, columns};
  }
  // Row t of the head's channels in a tensor of (B, T, C), or (B, T, 3C) for Q, K and V, which are
  // its parts 0, 1 and 2.
  S* row(const Tensor& x, int64_t part, int64_t t) const {
    const int64_t width = x.numel() / (saved.qkv.dim(0) * T);
    return x.data<S>().data() + (b * T + t) * width + (part * H + h) * D;
  }
  Matrix<F> read(const Tensor& x, int64_t part = 0) {
    const Matrix<F> m = take(D);
    for (int64_t t = 0; t < T; ++t) reference::convert(row(x, part, t), m[t], D);
    return m;
  }
  void write(const Matrix<F>& m, const Tensor& x, int64_t part = 0) const {
    for (int64_t t = 0; t < T; ++t) reference::convert(m[t], row(x, part, t), D);
  }
  F* log_sum_exp() const { return saved.log_sum_exp.data<F>().data() + (b * H + h) * T; }  // L
};

template <class Body>
void for_each_head(const AttentionSaved& saved, const Tensor& workspace, Body body) {
  if (saved.y.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class S>(S) {
    for (int64_t b = 0; b < saved.qkv.dim(0); ++b)
      for (int64_t h = 0; h < saved.heads; ++h)
        body(Head<S>{saved, b, h, static_cast<Compute<S>*>(workspace.address())});
  });
}

template <class F>
void scale_by_root(const Matrix<F>& m, int64_t D) {  // m / sqrt(D)
  const F factor = 1 / std::sqrt(F(D));
  for (int64_t i = 0; i < m.rows * m.columns; ++i) m.data[i] *= factor;
}

// S, with minus infinity above the diagonal.
template <class F>
void causal_scores(const Matrix<F>& Q, const Matrix<F>& K, const Matrix<F>& S) {
  product(Q, transposed(K), S);
  scale_by_root(S, Q.columns);
  for (int64_t i = 0; i < S.rows; ++i)
    std::fill(S[i] + i + 1, S[i] + S.columns, -std::numeric_limits<F>::infinity());
}

// L_i. The largest score is subtracted, and added again after the logarithm, so that no exponential
// overflows. One of them is then 1, so the sum is not 0.
template <class F>
F log_sum_exp(const F* scores, int64_t n) {
  const F largest = *std::max_element(scores, scores + n);
  F sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += std::exp(scores[j] - largest);
  return largest + std::log(sum);
}

template <class F>
void scores_to_weights(const Matrix<F>& S, const F* L) {  // S becomes P
  for (int64_t i = 0; i < S.rows; ++i)
    for (int64_t j = 0; j < S.columns; ++j) S[i][j] = std::exp(S[i][j] - L[i]);
}

template <class F>
void softmax_backward(const Matrix<F>& P, const Matrix<F>& dP) {  // dP becomes dS
  for (int64_t i = 0; i < P.rows; ++i) {
    F mean = 0;  // weighted: the weights of a row add up to 1
    for (int64_t k = 0; k < P.columns; ++k) mean += P[i][k] * dP[i][k];
    for (int64_t j = 0; j < P.columns; ++j) dP[i][j] = P[i][j] * (dP[i][j] - mean);
  }
}

}  // namespace

void kernel::attention(const AttentionSaved& s) {
  const auto [B, T, H, D] = checked_dims("attention", s);
  // Two matmuls (scores, weighted values) over the lower triangle, diagonal included; a
  // multiply-add counts as 2 operations.
  recorded("attention", s.y, 4 * B * H * D * (T * (T + 1) / 2), {&s.qkv, &s.y, &s.log_sum_exp})
      .attention(s, workspace(KernelId::attention, {B, T, H, D}, s.y));
}

void Backend::attention(const AttentionSaved& saved, const Tensor& workspace) {
  for_each_head(saved, workspace, [&](auto head) {
    const auto Q = head.read(saved.qkv, 0), K = head.read(saved.qkv, 1),
               V = head.read(saved.qkv, 2), Y = head.take(head.D), P = head.take(head.T);
    const auto L = head.log_sum_exp();

    causal_scores(Q, K, P);  // S, where P will be
    for (int64_t i = 0; i < head.T; ++i) L[i] = log_sum_exp(P[i], head.T);
    scores_to_weights(P, L);
    product(P, V, Y);

    head.write(Y, saved.y);
  });
}

void kernel::attention_backward(const AttentionSaved& s, const Tensor& dy, const Tensor& dqkv) {
  const auto [B, T, H, D] = checked_dims("attention_backward", s);
  require_same("attention_backward", s.y, {&dy});
  require_same("attention_backward", s.qkv, {&dqkv});
  recorded("attention_backward", dqkv, 10 * B * H * D * (T * (T + 1) / 2),
           {&s.qkv, &s.y, &s.log_sum_exp, &dy, &dqkv})
      .attention_backward(s, dy, dqkv, workspace(KernelId::attention_backward, {B, T, H, D}, dqkv));
}

void Backend::attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv,
                                 const Tensor& workspace) {
  for_each_head(saved, workspace, [&](auto head) {
    const int64_t T = head.T, D = head.D;
    const auto Q = head.read(saved.qkv, 0), K = head.read(saved.qkv, 1),
               V = head.read(saved.qkv, 2), dY = head.read(dy), dQ = head.take(D),
               dK = head.take(D), dV = head.take(D), P = head.take(T), dP = head.take(T);

    causal_scores(Q, K, P);
    scores_to_weights(P, head.log_sum_exp());
    product(transposed(P), dY, dV);
    product(dY, transposed(V), dP);
    softmax_backward(P, dP);
    const auto& dS = dP;
    scale_by_root(dS, D);  // of both products below
    product(dS, K, dQ);
    product(transposed(dS), Q, dK);

    head.write(dQ, dqkv, 0);
    head.write(dK, dqkv, 1);
    head.write(dV, dqkv, 2);
  });
}

}  // namespace zl
