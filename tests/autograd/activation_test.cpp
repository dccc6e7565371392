// The lifetime of activations, in the bytes of the ledger.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "autograd/ops.h"
#include "tests/autograd/workbench.h"

namespace zl {
namespace {

constexpr int64_t R = 5, C = 16;
constexpr int64_t kActivation = R * C * 4;  // [B] of one (R, C) in f32

// Four layers of two matrices each; the tape keeps the inputs of every linear and gelu.
struct Stack {
  std::vector<Parameter*> w, b;
  Output of_gelu;
  explicit Stack(Workbench& bench, Output of_gelu = Output::kept) : of_gelu(of_gelu) {
    for (int i = 0; i < 4; ++i) {
      w.push_back(&bench.parameter(str("w", i), {C, C}, Dtype::f32));
      b.push_back(&bench.parameter(str("b", i), {C}, Dtype::f32));
    }
  }
  Var run(
      Tape* tape, Var x, const std::function<void(int)>& after_layer = [](int) {}) const {
    for (size_t i = 0; i < w.size(); ++i) {
      x = gelu(linear(x, Var::parameter(tape, *w[i]), Var::parameter(tape, *b[i])), of_gelu);
      after_layer(int(i));
    }
    return x;
  }
};

}  // namespace

TEST_CASE(
    "without a tape a forward pass keeps only its result; with one it keeps what the ops document",
    "[autograd]") {
  Workbench bench;
  const Stack stack(bench);
  const auto input = [&] { return Var::constant(nullptr, bench.normal({R, C}, Dtype::f32)); };
  Tape tape;
  Var y = stack.run(nullptr, input());
  CHECK(bench.activation_bytes() == kActivation);
  CHECK(bench.memory.ledger().peak(MemoryUse::activation) <= 3 * kActivation);
  y = stack.run(&tape, input());
  // Each linear keeps x, each gelu its input; the last value is held by y alone.
  CHECK(bench.activation_bytes() == (4 + 4 + 1) * kActivation);
}

TEST_CASE("recomputed outputs are not kept: one at a time, freed before dx", "[autograd]") {
  Workbench bench;
  const Stack stack(bench, Output::recomputed);
  Var x = Var::constant(nullptr, bench.normal({R, C}, Dtype::f32));
  Tape tape;
  const Var y = reshape(stack.run(&tape, std::exchange(x, {})), {R * C});
  // The first linear keeps x, each gelu its input; the last value is held by y alone.
  CHECK(bench.activation_bytes() == (1 + 4 + 1) * kActivation);
  Tensor seed = bench.normal({R, C}, Dtype::f32);
  const int64_t before = bench.activation_bytes();
  bench.memory.ledger().reset_peak();
  tape.backward(y, std::move(seed));
  // The last gelu frees its input and works in place. The last linear has its x again, then dx.
  CHECK(bench.memory.ledger().peak(MemoryUse::activation) == before);
  CHECK(bench.activation_bytes() == kActivation);  // y
}

TEST_CASE("activations are freed during the backward pass", "[autograd]") {
  Workbench bench;
  const Stack stack(bench);
  std::vector<int64_t> live;
  Tape tape;
  Var y;
  {
    Var x = Var::constant(nullptr, bench.normal({R, C}, Dtype::f32));
    y = stack.run(&tape, std::exchange(x, {}),
                  [&](int) { tape.hook([&] { live.push_back(bench.activation_bytes()); }); });
  }
  Tensor seed = bench.normal({R, C}, Dtype::f32);
  const Var from = std::exchange(y, {});
  bench.memory.ledger().reset_peak();
  const int64_t before = bench.activation_bytes();
  tape.backward(from, std::move(seed));
  // At the mark after layer i: result, running gradient, two activations of each layer below.
  CHECK(before == (8 + 1 + 1) * kActivation);
  CHECK(live == std::vector{10 * kActivation, 8 * kActivation, 6 * kActivation, 4 * kActivation});
  CHECK(bench.activation_bytes() == kActivation);  // from
  // gelu works in place; a linear needs the gradient of its input beside that of its output.
  CHECK(bench.memory.ledger().peak(MemoryUse::activation) <= before + kActivation);
}

TEST_CASE("an activation that no op captured is freed with its last handle", "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("p", {R, C}, Dtype::f32);
  Tape tape;
  const int64_t before = bench.activation_bytes();
  Var x = add(Var::parameter(&tape, p), Var::parameter(&tape, p));
  x = add(x, x);  // add keeps nothing
  x = add(x, x);
  CHECK(bench.activation_bytes() - before == kActivation);
  x = gelu(x);
  CHECK(bench.activation_bytes() - before == 2 * kActivation);  // gelu keeps its input
}

TEST_CASE("if any allocation fails, nothing leaks and the tape is empty", "[autograd]") {
  Workbench bench;
  const Output output = GENERATE(Output::kept, Output::recomputed);
  const Stack stack(bench, output);
  Parameter &weight = bench.parameter("weight", {C}, Dtype::f32),
            &bias = bench.parameter("bias", {C}, Dtype::f32);
  Parameter& head = bench.parameter("head", {11, C}, Dtype::f32);
  const Tensor targets = bench.ids({R}, 11);
  const int64_t baseline = bench.activation_bytes();
  int64_t failures = 0;
  for (int64_t k = 1; k == failures + 1; ++k) {
    CAPTURE(k);
    bench.memory.fail_at(k);
    try {
      Tape tape;
      Var x = stack.run(&tape, Var::constant(&tape, bench.normal({R, C}, Dtype::f32)));
      x = add(x, layer_norm(x, Var::parameter(&tape, weight), Var::parameter(&tape, bias), output));
      const Var loss =
          cross_entropy(project(std::exchange(x, {}), Var::parameter(&tape, head)), targets);
      tape.backward(loss, bench.tensor({1}, {1.0}, Dtype::f32));
      CHECK(tape.entries() == 0);
    } catch (const OutOfMemory&) {
      ++failures;
    }
    CHECK(bench.activation_bytes() == baseline);
    CHECK(bench.memory.ledger().live(MemoryUse::workspace) == 0);
  }
  CHECK(failures > 20);
}

TEST_CASE("a throw in backward empties the tape and frees what it held", "[autograd]") {
  Workbench bench;
  const Stack stack(bench);
  const int64_t baseline = bench.activation_bytes();
  const bool in_mark = GENERATE(true, false);
  {
    Tape tape;
    Var x = stack.run(&tape, Var::constant(&tape, bench.normal({R, C}, Dtype::f32)));
    if (in_mark)
      tape.hook([] { throw std::runtime_error("stop"); });
    else
      x = tape.record(x.value(), [](Tensor) { throw std::runtime_error("stop"); });
    const Var y = stack.run(&tape, std::exchange(x, {}));
    CHECK_THROWS_AS(tape.backward(y, bench.normal({R, C}, Dtype::f32)), std::runtime_error);
    CHECK(tape.entries() == 0);
    CHECK(bench.activation_bytes() == baseline + kActivation);  // y
  }
  CHECK(bench.activation_bytes() == baseline);
}

}  // namespace zl
