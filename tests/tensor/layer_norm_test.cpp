#include <array>
#include <catch2/catch_test_macros.hpp>

#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

constexpr double kEps = 1e-5;

struct NormCase {
  int64_t R, C;
  Dtype dtype = Dtype::f32;
  Write write_dx = Write::set;
};

struct Inputs {
  Values x, weight, bias, dy;
};

struct NormResults {
  Values y, mean, rstd, dx, dweight, dbias;
  bool operator==(const NormResults&) const = default;
};

Inputs inputs(Cpu& cpu, const NormCase& c, double shift = 0.5) {
  Inputs in{random_values(c.R * c.C, 1), random_values(c.C, 2), random_values(c.C, 3),
            random_values(c.R * c.C, 4)};
  for (double& v : in.x) v += shift;
  for (Values* v : {&in.x, &in.weight, &in.bias, &in.dy})
    *v = doubles(cpu.of(*v, {int64_t(v->size())}, c.dtype));
  return in;
}

// The values of gradients before the kernel adds to them.
constexpr double kBefore = 0.25;
Values before(int64_t n) { return Values(size_t(n), kBefore); }

NormResults run(Cpu& cpu, const NormCase& c, const Inputs& in) {
  const Dtype statistics = statistics_type(c.dtype);
  const LayerNormSaved saved{cpu.of(in.x, {c.R, c.C}, c.dtype), cpu.of(in.weight, {c.C}, c.dtype),
                             cpu.nan({c.R}, statistics), cpu.nan({c.R}, statistics)};
  const Tensor y = cpu.nan({c.R, c.C}, c.dtype);
  cpu.backend.layer_norm(saved, cpu.of(in.bias, {c.C}, c.dtype), kEps, y);
  const Tensor dx = c.write_dx == Write::set ? cpu.nan({c.R, c.C}, c.dtype)
                                             : cpu.of(before(c.R * c.C), {c.R, c.C}, c.dtype);
  const LayerNormGradients out{dx, c.write_dx, cpu.of(before(c.C), {c.C}, c.dtype),
                               cpu.of(before(c.C), {c.C}, c.dtype)};
  const GuardedWorkspace workspace(cpu, KernelId::layer_norm_backward, {c.R, c.C}, c.dtype);
  cpu.backend.layer_norm_backward(saved, cpu.of(in.dy, {c.R, c.C}, c.dtype), out, workspace);
  CHECK(workspace.intact());
  return {doubles(y),  doubles(saved.mean),  doubles(saved.rstd),
          doubles(dx), doubles(out.dweight), doubles(out.dbias)};
}

// By the reference in f64.
NormResults exact(NormCase c, const Inputs& in) {
  Cpu reference(reference_backend());
  c.dtype = Dtype::f64;
  return run(reference, c, in);
}

TEST_CASE("layer_norm and its gradient agree with the reference in f64 in every type, set or added",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  constexpr std::array<int64_t, 2> sizes[] = {{1, 1},  {3, 2},   {2, 7},   {17, 16},
                                              {5, 17}, {33, 65}, {7, 130}, {65, 33}};
  for (const Dtype dtype : kTypes) {
    for (const auto& [R, C] : sizes) {
      for (const Write write : {Write::set, Write::add}) {
        const NormCase c{R, C, dtype, write};
        CAPTURE(name(dtype), R, C, write == Write::add);
        const Inputs in = inputs(cpu, c);
        const NormResults expected = exact(c, in), result = run(cpu, c, in);
        const auto close = [&](const Values& a, const Values& b, double eps) {
          return largest_difference(a, b) <=
                 (eps + 16 * compute_epsilon(dtype) * double(R)) * std::max(1.0, size_of_values(b));
        };
        // A row of few channels may have a small variance, by which its rounding is divided.
        const double spread = std::max(1.0, size_of_values(expected.rstd));
        CHECK(close(result.mean, expected.mean, 0));
        CHECK(close(result.rstd, expected.rstd, compute_epsilon(dtype) * spread));
        CHECK(close(result.y, expected.y, epsilon(dtype) + 4 * compute_epsilon(dtype) * spread));
        CHECK(close(result.dx, expected.dx,
                    epsilon(dtype) + 4 * compute_epsilon(dtype) * spread * spread));
        CHECK(close(result.dweight, expected.dweight,
                    epsilon(dtype) + 4 * compute_epsilon(dtype) * spread));
        CHECK(close(result.dbias, expected.dbias, epsilon(dtype)));
        Inputs other = in;
        other.bias[0] += 0.5;
        CHECK_FALSE(close(run(cpu, c, other).y, expected.y, epsilon(dtype)));
      }
    }
  }
}

TEST_CASE("layer_norm is accurate if the mean is much larger than the deviation", "[tensor]") {
  Cpu cpu(any_host_backend());
  const NormCase c{2, 130};
  const Inputs in = inputs(cpu, c, 1000);
  CHECK(largest_difference(run(cpu, c, in).y, exact(c, in).y) <
        1e-3);  // E[x^2] - E[x]^2 would be off by a tenth
}

TEST_CASE("the bits of a row's layer_norm and dx do not depend on the other rows", "[tensor]") {
  Cpu cpu(any_host_backend());
  for (const Dtype dtype : kTypes) {
    const NormCase c{9, 45, dtype}, one{1, 45, dtype};
    const Inputs in = inputs(cpu, c);
    const NormResults all = run(cpu, c, in);
    const auto row = [&](const Values& v, int64_t r) {
      return Values(v.begin() + r * c.C, v.begin() + (r + 1) * c.C);
    };
    for (int64_t r = 0; r < c.R; ++r) {
      const NormResults alone = run(cpu, one, {row(in.x, r), in.weight, in.bias, row(in.dy, r)});
      CHECK(alone.y == row(all.y, r));
      CHECK(alone.dx == row(all.dx, r));
      CHECK(alone.y != row(all.y, (r + 1) % c.R));
    }
  }
}

}  // namespace
