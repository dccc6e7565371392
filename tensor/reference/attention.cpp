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
#include <cmath>
#include <limits>

#include "tensor/backend.h"
#include "tensor/reference/product.h"

namespace zl {
namespace {

using reference::Matrix;
using reference::product;
using reference::transposed;

// Hands out consecutive matrices of the workspace.
template <class F>
struct Space {
  F* next;
  Matrix<F> take(int64_t rows, int64_t columns) {
    F* const data = next;
    next += rows * columns;
    return {data, rows, columns};
  }
};

// The channels of one head in a tensor of (B, T, width), where width is 3C for Q, K and V, and C
// for Y: `first` is the first of them, of the first token. Reads its rows, in the compute type.
template <class T, class F>
Matrix<F> read(const T* first, int64_t width, const Matrix<F>& to) {
  for (int64_t t = 0; t < to.rows; ++t) reference::convert(first + t * width, to[t], to.columns);
  return to;
}

template <class T, class F>
void write(const Matrix<F>& from, T* first, int64_t width) {
  for (int64_t t = 0; t < from.rows; ++t)
    reference::convert(from[t], first + t * width, from.columns);
}

template <class F>
void scale(const Matrix<F>& m, F factor) {
  for (int64_t i = 0; i < m.rows * m.columns; ++i) m.data[i] *= factor;
}

// S, with minus infinity above the diagonal.
template <class F>
void causal_scores(const Matrix<F>& Q, const Matrix<F>& K, const Matrix<F>& S) {
  product(Q, transposed(K), S);
  scale(S, 1 / std::sqrt(F(Q.columns)));
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

// Calls body(token, channel, head) for each head of each sequence: the row of its first token in
// (B * T, C), its first channel, and its index among all B * heads.
template <class Body>
void for_each_head(const AttentionSaved& saved, Body body) {
  const int64_t B = saved.qkv.dim(0), T = saved.qkv.dim(1), C = saved.qkv.dim(2) / 3;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < saved.heads; ++h)
      body(b * T, h * (C / saved.heads), b * saved.heads + h);
}

}  // namespace

void Backend::attention(const AttentionSaved& saved, const Tensor& workspace) {
  const int64_t T = saved.qkv.dim(1), C = saved.qkv.dim(2) / 3, D = C / saved.heads;
  if (saved.y.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class S>(S) {
    using F = Compute<S>;
    for_each_head(saved, [&](int64_t token, int64_t channel, int64_t head) {
      S* const qkv = saved.qkv.data<S>().data() + token * 3 * C + channel;
      Space<F> space{static_cast<F*>(workspace.address())};
      const auto Q = read(qkv, 3 * C, space.take(T, D)), K = read(qkv + C, 3 * C, space.take(T, D)),
                 V = read(qkv + 2 * C, 3 * C, space.take(T, D)), Y = space.take(T, D),
                 P = space.take(T, T);
      F* const L = saved.log_sum_exp.data<F>().data() + head * T;

      causal_scores(Q, K, P);  // S, where P will be
      for (int64_t i = 0; i < T; ++i) L[i] = log_sum_exp(P[i], T);
      scores_to_weights(P, L);
      product(P, V, Y);

      write(Y, saved.y.data<S>().data() + token * C + channel, C);
    });
  });
}

void Backend::attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv,
                                 const Tensor& workspace) {
  const int64_t T = saved.qkv.dim(1), C = saved.qkv.dim(2) / 3, D = C / saved.heads;
  if (saved.y.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class S>(S) {
    using F = Compute<S>;
    for_each_head(saved, [&](int64_t token, int64_t channel, int64_t head) {
      S *const qkv = saved.qkv.data<S>().data() + token * 3 * C + channel,
               *const out = dqkv.data<S>().data() + token * 3 * C + channel;
      Space<F> space{static_cast<F*>(workspace.address())};
      const auto Q = read(qkv, 3 * C, space.take(T, D)), K = read(qkv + C, 3 * C, space.take(T, D)),
                 V = read(qkv + 2 * C, 3 * C, space.take(T, D)),
                 dY = read(dy.data<S>().data() + token * C + channel, C, space.take(T, D)),
                 dQ = space.take(T, D), dK = space.take(T, D), dV = space.take(T, D),
                 P = space.take(T, T), dP = space.take(T, T);

      causal_scores(Q, K, P);
      scores_to_weights(P, saved.log_sum_exp.data<F>().data() + head * T);
      product(transposed(P), dY, dV);
      product(dY, transposed(V), dP);
      softmax_backward(P, dP);
      const Matrix<F>& dS = dP;
      scale(dS, 1 / std::sqrt(F(D)));  // of both products below
      product(dS, K, dQ);
      product(transposed(dS), Q, dK);

      write(dQ, out, 3 * C);
      write(dK, out + C, 3 * C);
      write(dV, out + 2 * C, 3 * C);
    });
  });
}

}  // namespace zl
