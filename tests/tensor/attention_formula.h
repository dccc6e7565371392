// Causal attention and its gradient in double, for the tests of the kernels of CPU and GPU.
#pragma once

#include <cmath>
#include <vector>

#include "tensor/dtype.h"

namespace zl::test::attention_formula {

using Values = std::vector<double>;

struct Case {
  int64_t B, T, H, D;
  Dtype dtype = Dtype::f32;
  int64_t C() const { return H * D; }
};

struct Results {
  Values y, log_sum_exp, dqkv;
  bool operator==(const Results&) const = default;
};

// The textbook, one query at a time: P = softmax(q k / sqrt(D)), y = P v; dS = P (dP - sum(P dP)).
inline Results reference(const Case& c, const Values& qkv, const Values& dy) {
  Results out{Values(dy.size()), Values(size_t(c.B * c.H * c.T)), Values(qkv.size())};
  const double scale = 1 / std::sqrt(double(c.D));
  for (int64_t bh = 0; bh < c.B * c.H; ++bh) {
    const int64_t b = bh / c.H, h = bh % c.H;
    const auto at = [&](int64_t part, int64_t t, int64_t d) {
      return size_t((b * c.T + t) * 3 * c.C() + part * c.C() + h * c.D + d);
    };
    const auto out_at = [&](int64_t t, int64_t d) {
      return size_t((b * c.T + t) * c.C() + h * c.D + d);
    };
    for (int64_t i = 0; i < c.T; ++i) {
      Values p(size_t(i + 1)), dp(size_t(i + 1));
      double sum = 0, weighted = 0;
      for (int64_t j = 0; j <= i; ++j) {
        double s = 0;
        for (int64_t d = 0; d < c.D; ++d) s += qkv[at(0, i, d)] * qkv[at(1, j, d)] * scale;
        sum += p[size_t(j)] = std::exp(s);
      }
      out.log_sum_exp[size_t(bh * c.T + i)] = std::log(sum);
      for (int64_t j = 0; j <= i; ++j) {
        p[size_t(j)] /= sum;
        for (int64_t d = 0; d < c.D; ++d) {
          out.y[out_at(i, d)] += p[size_t(j)] * qkv[at(2, j, d)];
          dp[size_t(j)] += dy[out_at(i, d)] * qkv[at(2, j, d)];
          out.dqkv[at(2, j, d)] += p[size_t(j)] * dy[out_at(i, d)];
        }
        weighted += p[size_t(j)] * dp[size_t(j)];
      }
      for (int64_t j = 0; j <= i; ++j) {
        const double ds = p[size_t(j)] * (dp[size_t(j)] - weighted) * scale;
        for (int64_t d = 0; d < c.D; ++d) {
          out.dqkv[at(0, i, d)] += ds * qkv[at(1, j, d)];
          out.dqkv[at(1, j, d)] += ds * qkv[at(0, i, d)];
        }
      }
    }
  }
  return out;
}

}  // namespace zl::test::attention_formula
