// Gradients that share a buffer: add passes its gradient to both inputs without a copy, and ops
// reuse buffers in place.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "autograd/ops.h"
#include "tensor/random.h"
#include "tests/autograd/gradient_check.h"
#include "tests/autograd/workbench.h"

namespace zl {
namespace {

constexpr int64_t B = 2, T = 2, C = 3;

struct Leaves {
  Parameter &a, &b, &w, &bias, &weight;
  explicit Leaves(Workbench& bench)
      : a(bench.parameter("a", {B, T, C})),
        b(bench.parameter("b", {B, T, C})),
        w(bench.parameter("w", {C, C})),
        bias(bench.parameter("bias", {C})),
        weight(bench.parameter("weight", {C})) {}
  std::vector<Parameter*> all() { return {&a, &b, &w, &bias, &weight}; }
};

// y = 2x with a backward that always works in place: wrong if another op reads the same
// gradient.
Var careless_double(Workbench& bench, const Var& x) {
  auto twice = [](std::vector<double> v) {
    for (double& e : v) e *= 2;
    return v;
  };
  Tensor y = bench.tensor(x.value().shape(), twice(values(x.value())));
  if (!x.tape()) return Var::constant(nullptr, y);
  return x.tape()->record(y, [=, to = x.target()](Tensor dy) {
    assign(dy, twice(values(dy)));
    Tape::accumulate(to, std::move(dy));
  });
}

// A graph of `size` ops, each on values drawn from all that came before.
Var random_graph(Tape* tape, Leaves& leaves, uint64_t seed, int size) {
  const PhiloxStream random{seed, 0};
  uint64_t drawn = 0;
  const auto draw = [&](size_t n) { return size_t(random.uniform(drawn++) * double(n)); };
  const auto leaf = [&](Parameter& p) { return Var::parameter(tape, p); };
  std::vector<Var> made = {leaf(leaves.a), leaf(leaves.b)};
  for (int i = 0; i < size; ++i) {
    const Var x = made[draw(made.size())], z = made[draw(made.size())];
    const Output output = draw(2) ? Output::recomputed : Output::kept;
    switch (draw(8)) {
      case 0: made.push_back(gelu(x, output)); break;
      case 1: made.push_back(linear(x, leaf(leaves.w), leaf(leaves.bias))); break;
      case 2:
        made.push_back(layer_norm(x, leaf(leaves.weight), leaf(leaves.bias), output, 0.1));
        break;
      case 3: made.push_back(add_positions(x, leaf(leaves.w))); break;
      case 4: made.push_back(project(x, leaf(leaves.w))); break;
      default: made.push_back(add(x, z)); break;
    }
  }
  Var sum = made[0];
  for (size_t i = 1; i < made.size(); ++i) sum = add(sum, made[i]);
  return layer_norm(sum, leaf(leaves.weight), leaf(leaves.bias), Output::kept,
                    0.1);  // so that numbers stay near 1
}

}  // namespace

TEST_CASE("random graphs with shared gradients agree with central differences", "[autograd]") {
  Workbench bench;
  Leaves leaves(bench);
  const Tensor w = bench.normal({B, T, C});
  const auto seed = uint64_t(GENERATE(range(0, 100)));
  CAPTURE(seed);
  const auto result = check_gradients(
      leaves.all(), [&](Tape* t) { return weighted_sum(random_graph(t, leaves, seed, 8), w); }, 1,
      1e-6);
  CAPTURE(result.worst);
  CHECK(result.largest_error < 1e-6);
}

TEST_CASE("an op that overwrites a shared gradient corrupts the other branch of an add",
          "[autograd]") {
  Workbench bench;
  Leaves leaves(bench);
  const Tensor w = bench.normal({B, T, C});
  const bool careless = GENERATE(false, true);
  const auto loss = [&](Tape* t) {
    const Var a = Var::parameter(t, leaves.a), x = gelu(a), y = add(a, Var::parameter(t, leaves.b));
    const Var z = gelu(y), doubled = careless ? careless_double(bench, z) : add(z, z);
    return weighted_sum(add(add(x, y), doubled), w);  // x, y and doubled get the same buffer
  };
  const auto result = check_gradients(leaves.all(), loss);
  CAPTURE(result.worst);
  if (careless)
    CHECK(result.largest_error > 1e-2);
  else
    CHECK(result.largest_error < 1e-8);
}

}  // namespace zl
