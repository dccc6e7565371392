#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

struct NormCase {
  int64_t R, C;
  Dtype dtype;
  double offset = 0;  // of every input, where its variance is 1
  Dtype statistics() const { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
  std::vector<double> x() const {
    std::vector<double> values = random_values(R * C, 1);
    for (double& v : values) v += offset;
    return values;
  }
};

struct NormOutput {
  std::vector<double> y, mean, rstd;
};

NormOutput forward(Side& s, const NormCase& c) {
  const LayerNormSaved saved{s.of(c.x(), {c.R, c.C}, c.dtype),
                             s.of(random_values(c.C, 2), {c.C}, c.dtype),
                             s.nan({c.R}, c.statistics()), s.nan({c.R}, c.statistics())};
  const Tensor y = s.nan({c.R, c.C}, c.dtype);
  kernel::layer_norm(saved, s.of(random_values(c.C, 3), {c.C}, c.dtype), 1e-5, y);
  return {values_of(y), values_of(saved.mean), values_of(saved.rstd)};
}

struct Gradients {
  std::vector<double> dx, dweight, dbias;
};

// Backward from the statistics in `saved`. Write::set overwrites dy.
Gradients backward(Side& s, const NormCase& c, const NormOutput& saved, Write write) {
  const LayerNormSaved tensors{
      s.of(c.x(), {c.R, c.C}, c.dtype), s.of(random_values(c.C, 2), {c.C}, c.dtype),
      s.of(saved.mean, {c.R}, c.statistics()), s.of(saved.rstd, {c.R}, c.statistics())};
  const Tensor dy = s.of(random_values(c.R * c.C, 4), {c.R, c.C}, c.dtype);
  const Tensor dx =
      write == Write::set ? dy : s.of(random_values(c.R * c.C, 5), {c.R, c.C}, c.dtype);
  const LayerNormGradients out{dx, write, s.of(random_values(c.C, 6), {c.C}, c.dtype),
                               s.of(random_values(c.C, 7), {c.C}, c.dtype)};
  kernel::layer_norm_backward(tensors, dy, out);
  return {values_of(out.dx), values_of(out.dweight), values_of(out.dbias)};
}

double unit_roundoff(Dtype dtype) {
  return dtype == Dtype::f64   ? 0x1p-53
         : dtype == Dtype::f32 ? 0x1p-24
         : dtype == Dtype::f16 ? 0x1p-11
                               : 0x1p-8;
}

// How far the two sides' values of each element of dx may be apart, to first order. With
// n = (x - mean) * rstd and d = dy * weight, dx = rstd * (d - mean(d) - n * mean(d * n)). Its terms
// cancel, with one column to 0, so errors are relative to them and not to dx. One side's roundings
// are at most, a fused product and sum has one less:
//   of d               1
//   of mean(d)         additions + 2, for the products and the division
//   of n * mean(d * n) additions + 8, for n twice, 2 each, d, d * n, the division, and n * mean
//   of the rest        2 differences and the product with rstd: 1 of n * mean(d * n), 3 of dx;
//                      1 of the sum, if dx is added to another value
// The CPU adds in 16 lanes, then pairwise. On the GPU 32 threads add packs, then pairwise. At the
// end each side rounds to the type of dx, whose spacing stops falling at its smallest normal
// number.
std::vector<double> bounds_of_dx(const NormCase& c, const NormOutput& saved, Write write,
                                 const std::vector<double>& expected) {
  Side side(cpu_backend());
  const auto rounded = [&](const std::vector<double>& values) {
    return values_of(side.of(values, {int64_t(values.size())}, c.dtype));
  };
  const std::vector<double> x = rounded(c.x()), weight = rounded(random_values(c.C, 2)),
                            dy = rounded(random_values(c.R * c.C, 4)),
                            old = rounded(random_values(c.R * c.C, 5));
  const int64_t pack = 16 / size_of(c.dtype),
                of_thread = (c.C + 32 * pack - 1) / (32 * pack) * pack;
  const double additions = c.C == 1 ? 0 : double(std::max((c.C - 1) / 16, of_thread) + 5),
               computed = unit_roundoff(c.statistics()), stored = unit_roundoff(c.dtype),
               smallest = c.dtype == Dtype::f16 ? 0x1p-14 : 0x1p-126;
  std::vector<double> bounds;
  for (size_t r = 0, at = 0; r < size_t(c.R); ++r) {
    std::vector<double> d, n;
    double mean_d = 0, mean_dn = 0;
    for (size_t i = 0; i < size_t(c.C); ++i) {
      d.push_back(std::abs(dy[at + i] * weight[i]));
      n.push_back(std::abs((x[at + i] - saved.mean[r]) * saved.rstd[r]));
      mean_d += d[i] / double(c.C), mean_dn += d[i] * n[i] / double(c.C);
    }
    for (size_t i = 0; i < size_t(c.C); ++i, ++at) {
      const double result = std::abs(expected[at]),
                   dx = std::abs(expected[at] - (write == Write::add ? old[at] : 0)),
                   terms = d[i] + (additions + 2) * mean_d + (additions + 9) * n[i] * mean_dn;
      bounds.push_back(2 * (computed * (saved.rstd[r] * terms + 3 * dx + result) +
                            stored * (result + smallest)));
    }
  }
  return bounds;
}

// The largest |a - b| in units of its bound; infinite if one is not a number or the sizes differ.
double in_bounds(const std::vector<double>& a, const std::vector<double>& b,
                 const std::vector<double>& bounds) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double of_bound = std::abs(a[i] - b[i]) / bounds[i];
    if (!(of_bound <= largest)) largest = std::isnan(of_bound) ? HUGE_VAL : of_bound;
  }
  return largest;
}

}  // namespace

TEST_CASE("layer norm on the GPU is that of the CPU, with its statistics", "[cuda]") {
  const Dtype dtype = any_float_type();
  for (const int64_t R : {0, 1, 7, 8, 17}) {
    for (const int64_t C : {1, 31, 32, 33, 300}) {
      const NormCase c{R, C, dtype};
      CAPTURE(name(dtype), R, C);
      Side cpu(cpu_backend()), gpu(test_gpu());
      const NormOutput expected = forward(cpu, c), output = forward(gpu, c);
      CHECK(distance(output.y, expected.y) <= one_rounding(dtype));
      CHECK(distance(output.mean, expected.mean) <= one_rounding(c.statistics()));
      CHECK(distance(output.rstd, expected.rstd) <= one_rounding(c.statistics()));
    }
  }
}

TEST_CASE("the gradient of layer norm on the GPU is that of the CPU, set and added, over dy too",
          "[cuda]") {
  const Dtype dtype = any_float_type();
  const Write write = GENERATE(Write::set, Write::add);
  for (const int64_t R : {0, 1, 17, 47, 100}) {  // from one part of the rows to six
    for (const int64_t C : {1, 5, 33, 264, 300}) {
      const NormCase c{R, C, dtype};
      CAPTURE(name(dtype), R, C);
      Side cpu(cpu_backend()), gpu(test_gpu());
      const NormOutput saved = forward(cpu, c);
      const Gradients expected = backward(cpu, c, saved, write),
                      gradients = backward(gpu, c, saved, write);
      const auto bounds = bounds_of_dx(c, saved, write, expected.dx);
      CHECK(in_bounds(gradients.dx, expected.dx, bounds) <= 1);
      CHECK(distance(gradients.dweight, expected.dweight) <= one_rounding(dtype));
      CHECK(distance(gradients.dbias, expected.dbias) <= one_rounding(dtype));
    }
  }
}

TEST_CASE("layer norm on the GPU is accurate if the mean is large", "[cuda]") {
  const NormCase c{3, 300, Dtype::f32, 1000};
  Side cpu(cpu_backend()), gpu(test_gpu());
  const NormOutput expected = forward(cpu, c), output = forward(gpu, c);
  CHECK(distance(output.rstd, expected.rstd) < 1e-5);
  CHECK(distance(output.y, expected.y) < 1e-3);  // the mean has an error of 1e-4
}

TEST_CASE("one row that the GPU leaves out of layer norm and its gradients is noticed", "[cuda]") {
  const Dtype dtype = any_float_type();
  const NormCase all{17, 5, dtype}, some{16, 5, dtype};
  Side cpu(cpu_backend()), gpu(test_gpu());
  NormOutput expected = forward(cpu, all), output = forward(gpu, some);
  CHECK_FALSE(distance(output.y, expected.y) <= one_rounding(dtype));  // nor have they one size
  const Gradients gradients = backward(gpu, some, output, Write::set),
                  whole = backward(cpu, all, expected, Write::set);
  CHECK(distance(gradients.dweight, whole.dweight) > one_rounding(dtype));
  CHECK(distance(gradients.dbias, whole.dbias) > one_rounding(dtype));
  NormOutput scaled = expected;  // by 1,000 roundings
  for (double& rstd : scaled.rstd) rstd *= 1 + 1000 * unit_roundoff(dtype);
  CHECK(in_bounds(backward(gpu, all, scaled, Write::set).dx, whole.dx,
                  bounds_of_dx(all, expected, Write::set, whole.dx)) > 1);
}
