#include "stages/predict/clock/collective_fit.h"

#include <array>
#include <utility>

#include "stages/predict/clock/collective_time.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Three = std::array<double, 3>;

// The sums of the least-squares problem sum_i (row_i . x - 1)^2, where row_i holds 1, fill_root(S)
// and S, each over t.
struct NormalEquations {
  std::array<Three, 3> a{};
  Three b{};
  int rows = 0;

  void add(const Three& row) {
    for (int i = 0; i < 3; ++i) {
      b[size_t(i)] += row[size_t(i)];
      for (int j = 0; j < 3; ++j) a[size_t(i)][size_t(j)] += row[size_t(i)] * row[size_t(j)];
    }
    ++rows;
  }
  double squared_error(const Three& x) const {
    double error = rows;
    for (size_t i = 0; i < 3; ++i) {
      error -= 2 * b[i] * x[i];
      for (size_t j = 0; j < 3; ++j) error += x[i] * a[i][j] * x[j];
    }
    return error;
  }
  // The solution with the unknowns of `used`, one bit each, and 0 for the others; false if they
  // depend on each other.
  bool solve(unsigned used, Three& x) const {
    std::array<Three, 3> m = a;
    x = b;
    for (size_t i = 0; i < 3; ++i) {
      if (used >> i & 1) continue;
      for (size_t j = 0; j < 3; ++j) m[i][j] = m[j][i] = 0;
      m[i][i] = 1;
      x[i] = 0;
    }
    for (size_t i = 0; i < 3; ++i) {  // elimination; the matrix is positive definite
      if (m[i][i] <= 1e-12 * a[i][i]) return false;
      for (size_t k = i + 1; k < 3; ++k) {
        const double factor = m[k][i] / m[i][i];
        for (size_t j = i; j < 3; ++j) m[k][j] -= factor * m[i][j];
        x[k] -= factor * x[i];
      }
    }
    for (size_t i = 3; i-- > 0;) {
      for (size_t j = i + 1; j < 3; ++j) x[i] -= m[i][j] * x[j];
      x[i] /= m[i][i];
    }
    return true;
  }
};

}  // namespace

CollectiveTerms fit_terms(std::span<const TimedCall> calls, Collective collective, int ranks) {
  require(!calls.empty(), "fit_terms: there are no calls");
  // In these units the unknowns are of the same size for every table.
  constexpr double kRoot = 1e-3, kBytes = 1e-6;
  NormalEquations equations;
  for (const TimedCall& call : calls) {
    require(call.bytes > 0 && call.seconds > 0, "fit_terms: ", call.bytes, " B in ", call.seconds,
            " s");
    const double microseconds = 1e6 * call.seconds;
    equations.add({1 / microseconds, kRoot * fill_root(call.bytes) / microseconds,
                   kBytes * double(call.bytes) / microseconds});
  }
  Three best{};
  double least = equations.rows;  // of x = 0
  for (unsigned used = 1; used < 8; ++used) {
    Three x;
    if (!equations.solve(used, x) || x[0] < 0 || x[1] < 0 || x[2] < 0) continue;
    const double error = equations.squared_error(x);
    if (error < least) least = error, best = x;
  }
  const double seconds_per_byte = 1e-6 * kBytes * best[2];
  return {.alpha = 1e-6 * best[0],
          .root = 1e-6 * kRoot * best[1],
          .bus = seconds_per_byte > 0 ? link_factor(collective, ranks) / seconds_per_byte : 0};
}

}  // namespace zl
