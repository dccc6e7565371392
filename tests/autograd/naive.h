// The forward formulas of all ops, written out in double without any thought of speed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace zl::naive {

using Vector = std::vector<double>;

// x (R, I), w (I, O) or, transposed, (O, I) -> (R, O)
inline Vector matmul(const Vector& x, const Vector& w, int64_t R, int64_t I, int64_t O,
                     bool transposed = false) {
  Vector y;
  for (int64_t r = 0; r < R; ++r)
    for (int64_t o = 0; o < O; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < I; ++i)
        sum += x[size_t(r * I + i)] * w[size_t(transposed ? o * I + i : i * O + o)];
      y.push_back(sum);
    }
  return y;
}

inline Vector linear(const Vector& x, const Vector& w, const Vector& b) {
  const int64_t O = int64_t(b.size()), I = int64_t(w.size()) / O, R = int64_t(x.size()) / I;
  Vector y = matmul(x, w, R, I, O);
  for (size_t k = 0; k < y.size(); ++k) y[k] += b[k % b.size()];
  return y;
}

inline Vector gelu(Vector x) {
  for (double& v : x)
    v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
  return x;
}

inline Vector layer_norm(const Vector& x, const Vector& weight, const Vector& bias, double eps) {
  const size_t C = weight.size();
  Vector y(x.size());
  for (size_t row = 0; row < x.size(); row += C) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < C; ++c) mean += x[row + c] / double(C);
    for (size_t c = 0; c < C; ++c)
      variance += (x[row + c] - mean) * (x[row + c] - mean) / double(C);
    for (size_t c = 0; c < C; ++c)
      y[row + c] = (x[row + c] - mean) / std::sqrt(variance + eps) * weight[c] + bias[c];
  }
  return y;
}

struct AttentionShape {
  int64_t B, T, H, D;
};

// qkv (B, T, 3C) -> (B, T, C)
inline Vector attention(const Vector& qkv, AttentionShape s) {
  const int64_t C = s.H * s.D;
  Vector y(qkv.size() / 3);
  for (int64_t i = 0; i < s.B * s.T * s.H; ++i) {  // one query of one head
    const int64_t token = i / s.H, first = token / s.T * s.T, channel = i % s.H * s.D;
    const auto at = [&](int64_t of, int64_t part) { return (3 * of + part) * C + channel; };
    double sum = 0;
    Vector weighted(static_cast<size_t>(s.D));
    for (int64_t key = first; key <= token; ++key) {
      double score = 0;
      for (int64_t d = 0; d < s.D; ++d)
        score += qkv[size_t(at(token, 0) + d)] * qkv[size_t(at(key, 1) + d)];
      const double weight = std::exp(score / std::sqrt(double(s.D)));
      sum += weight;
      for (int64_t d = 0; d < s.D; ++d) weighted[size_t(d)] += weight * qkv[size_t(at(key, 2) + d)];
    }
    for (int64_t d = 0; d < s.D; ++d)
      y[size_t(token * C + channel + d)] = weighted[size_t(d)] / sum;
  }
  return y;
}

inline Vector embedding(const Vector& ids, const Vector& table, int64_t C) {
  Vector y;
  for (double id : ids)
    for (int64_t c = 0; c < C; ++c) y.push_back(table[size_t(int64_t(id) * C + c)]);
  return y;
}

// x (B, T, C), table (at least T, C)
inline Vector add_positions(Vector x, const Vector& table, int64_t T, int64_t C) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += table[i % size_t(T * C)];
  return x;
}

inline double cross_entropy(const Vector& logits, const Vector& targets) {
  const size_t V = logits.size() / targets.size();
  double loss = 0;
  for (size_t r = 0; r < targets.size(); ++r) {
    double denominator = 0;
    for (size_t v = 0; v < V; ++v) denominator += std::exp(logits[r * V + v]);
    loss += (std::log(denominator) - logits[r * V + size_t(targets[r])]) / double(targets.size());
  }
  return loss;
}

}  // namespace zl::naive
