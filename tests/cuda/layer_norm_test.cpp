#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

struct Case {
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

struct Output {
  std::vector<double> y, mean, rstd;
};

Output forward(Side& s, const Case& c) {
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
Gradients backward(Side& s, const Case& c, const Output& saved, Write write) {
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

double one_rounding(Dtype dtype) { return tolerance(dtype) / 2; }

}  // namespace

TEST_CASE("layer norm on the GPU is that of the CPU, with its statistics", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  for (const int64_t R : {0, 1, 7, 8, 17}) {
    for (const int64_t C : {1, 5, 31, 32, 33, 300}) {
      const Case c{R, C, dtype};
      CAPTURE(name(dtype), R, C);
      Side cpu(cpu_backend()), gpu(test_gpu());
      const Output expected = forward(cpu, c), output = forward(gpu, c);
      CHECK(distance(output.y, expected.y) <= one_rounding(dtype));
      CHECK(distance(output.mean, expected.mean) <= one_rounding(c.statistics()));
      CHECK(distance(output.rstd, expected.rstd) <= one_rounding(c.statistics()));
    }
  }
}

TEST_CASE("the gradient of layer norm on the GPU is that of the CPU, set and added, over dy too",
          "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const Write write = GENERATE(Write::set, Write::add);
  for (const int64_t R : {0, 1, 17, 47, 100}) {  // from one part of the rows to six
    for (const int64_t C : {1, 5, 33, 300}) {
      const Case c{R, C, dtype};
      CAPTURE(name(dtype), R, C);
      Side cpu(cpu_backend()), gpu(test_gpu());
      const Output saved = forward(cpu, c);
      const Gradients expected = backward(cpu, c, saved, write),
                      gradients = backward(gpu, c, saved, write);
      CHECK(distance(gradients.dx, expected.dx) <= one_rounding(dtype));
      CHECK(distance(gradients.dweight, expected.dweight) <= one_rounding(dtype));
      CHECK(distance(gradients.dbias, expected.dbias) <= one_rounding(dtype));
    }
  }
}

TEST_CASE("layer norm on the GPU is accurate if the mean is large", "[cuda]") {
  const Case c{3, 300, Dtype::f32, 1000};
  Side cpu(cpu_backend()), gpu(test_gpu());
  const Output expected = forward(cpu, c), output = forward(gpu, c);
  CHECK(distance(output.rstd, expected.rstd) < 1e-5);
  CHECK(distance(output.y, expected.y) < 1e-3);  // the mean has an error of 1e-4
}

TEST_CASE("one row that the GPU leaves out of layer norm and its gradients is noticed", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const Case all{17, 5, dtype}, some{16, 5, dtype};
  Side cpu(cpu_backend()), gpu(test_gpu());
  Output expected = forward(cpu, all), output = forward(gpu, some);
  CHECK_FALSE(distance(output.y, expected.y) <= one_rounding(dtype));  // nor have they one size
  const Gradients gradients = backward(gpu, some, output, Write::set),
                  whole = backward(cpu, all, expected, Write::set);
  CHECK(distance(gradients.dweight, whole.dweight) > one_rounding(dtype));
  CHECK(distance(gradients.dbias, whole.dbias) > one_rounding(dtype));
}
