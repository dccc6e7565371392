// Whether the optimizer gets the right gradient, and if not, which mistake explains it.
#include <cmath>
#include <functional>

#include "tensor/error.h"
#include "tutorials/exercises/08_mixed_precision/observed.h"

namespace zl::exercises::precision {
namespace {

// Of one step: the gradients of all ranks, unscaled, and their norms.
struct Gradients {
  Gradients(const PrecisionCase& c, size_t step, double scale) : scale(scale), n(c.max_norm) {
    double squares = 0;
    for (int rank = 0; rank < c.ranks; ++rank) {
      std::vector<double>& own = of_rank.emplace_back();
      double own_squares = 0;
      for (int64_t i = 0; i < c.n; ++i) {
        own.push_back(double(float(c.scaled_gradient(rank, step, i, scale))) / scale);
        own_squares += own.back() * own.back();
      }
      norms.push_back(std::sqrt(own_squares));
      squares += own_squares;
      sum_of_norms += norms.back();
    }
    norm = std::sqrt(squares);
  }
  double clip(double by) const { return n == 0 ? 1 : std::min(1.0, n / by); }

  std::vector<std::vector<double>> of_rank;
  std::vector<double> norms;  // of each shard
  double scale, n, norm = 0, sum_of_norms = 0;
};

using Expected = std::function<double(int rank, double g)>;

bool all_are(const Gradients& g, const Observed& seen, size_t step, const Expected& expected,
             double relative) {
  for (size_t rank = 0; rank < g.of_rank.size(); ++rank) {
    const std::vector<double>& is = seen.all(int(rank), "gradient", step);
    for (size_t i = 0; i < is.size(); ++i)
      if (!near(is[i], expected(int(rank), g.of_rank[rank][i]), relative)) return false;
  }
  return true;
}

double through_f16(double x) { return double(float(f16(float(x)))); }

std::string meaning_of(const Gradients& g, const std::function<bool(const Expected&)>& are) {
  const double right = g.clip(g.norm);
  const auto times = [&](double factor) {
    return are([factor](int, double x) { return factor * x; });
  };
  if (times(g.scale * right)) return str("the gradient is ", g.scale, " x too large: still scaled");
  if (g.n > 0) {
    if (right < 1 && times(1)) return "the gradient is not clipped";
    if (right == 1 && times(g.n / g.norm))
      return "a gradient that is smaller than max_norm is made larger by clipping";
    if (times(g.clip(g.norm * g.scale)))
      return str("clipped by the norm of the scaled gradient, which is ", g.scale, " x too large");
    if (are([&](int rank, double x) { return x * g.clip(g.norms[size_t(rank)]); }))
      return "each rank clips by the norm of its shard, not of the gradient of all ranks";
    if (times(g.clip(g.sum_of_norms)))
      return "clipped by the sum of the ranks' norms; their squares must be added";
    if (times(g.clip(g.norm * g.norm))) return "clipped by the square of the norm";
  }
  if (times(right / g.scale))
    return str("the gradient is ", g.scale, " x too small: unscaled twice");
  for (const double factor : {2.0, 0.5})
    if (times(factor * right))
      return str("the gradient is ", factor,
                 " x the right one: unscaled by the scale of the next step, not by that of this "
                 "gradient");
  if (are([&](int, double x) { return right * through_f16(x); }) ||
      are([&](int, double x) { return through_f16(right * through_f16(x)); }))
    return "unscaled in f16, which loses small values: unscale in fp32";
  return "the optimizer gets a wrong gradient";
}

std::string evidence(const Gradients& g, const Observed& seen, size_t step) {
  const double right = g.clip(g.norm);
  for (size_t rank = 0; rank < g.of_rank.size(); ++rank) {
    const std::vector<double>& is = seen.all(int(rank), "gradient", step);
    for (size_t i = 0; i < is.size(); ++i) {
      const double expected = right * g.of_rank[rank][i];
      if (near(is[i], expected, 1e-5)) continue;
      return str("step ", step + 1, ", rank ", rank, ", element ", i, ": the optimizer gets ",
                 is[i], ", expected ", expected, " (ratio ", is[i] / expected, "); scale ", g.scale,
                 ", norm ", g.norm, ", max_norm ", g.n);
    }
  }
  return "";
}

std::string meaning_of_norm(const Gradients& g, int rank, double is) {
  const auto like = [&](double x) { return near(is, x, 1e-5); };
  if (like(g.norm * g.scale)) return "the norm is that of the scaled gradient";
  if (like(g.norms[size_t(rank)])) return "the norm is that of this rank's shard";
  if (like(g.norm * g.norm)) return "the norm is the sum of squares: its square root is missing";
  if (like(g.norm * g.clip(g.norm))) return "the norm is that of the gradient after clipping";
  return "the norm is wrong";
}

}  // namespace

Failure judge_gradient(const PrecisionCase& c, const Observed& seen, size_t step, double scale) {
  const Gradients g(c, step, scale);
  const double right = g.clip(g.norm);
  for (int rank = 0; rank < c.ranks; ++rank)
    if (int64_t(seen.all(rank, "gradient", step).size()) != c.n)
      return failed("the optimizer gets a gradient of another size",
                    str(seen.all(rank, "gradient", step).size(), " elements, not ", c.n));
  const auto are = [&](const Expected& expected) { return all_are(g, seen, step, expected, 1e-5); };
  if (!are([&](int, double x) { return right * x; }))
    return failed(meaning_of(g, are), evidence(g, seen, step));
  for (int rank = 0; rank < c.ranks; ++rank) {
    const double is = seen.of_step(rank, "norm", step).value_or(-1);
    if (!near(is, g.norm, 1e-5))
      return failed(meaning_of_norm(g, rank, is),
                    str("step ", step + 1, ", rank ", rank, ": ", is, ", expected ", g.norm));
  }
  return {};
}

}  // namespace zl::exercises::precision
