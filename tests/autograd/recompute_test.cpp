// Outputs that backward computes again instead of keeping them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "autograd/ops.h"
#include "tests/autograd/workbench.h"

namespace zl {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr int64_t R = 5, C = 7, H = 11;

// A layer norm and two GELUs whose outputs are used by linear, matmul and project; one GELU's
// output is used by two of them, by an add, and by a layer norm.
struct Net {
  Workbench& bench;
  Dtype type;
  Parameter &x, &gain, &shift, &up, &up_bias, &down, &head, &h_gain, &h_shift;
  Tensor seed;
  explicit Net(Workbench& bench, Dtype type)
      : bench(bench),
        type(type),
        x(bench.parameter("x", {R, C}, type)),
        gain(bench.parameter("gain", {C}, type)),
        shift(bench.parameter("shift", {C}, type)),
        up(bench.parameter("up", {C, H}, type)),
        up_bias(bench.parameter("up_bias", {H}, type)),
        down(bench.parameter("down", {H, C}, type)),
        head(bench.parameter("head", {C, H}, type)),
        h_gain(bench.parameter("h_gain", {H}, type)),
        h_shift(bench.parameter("h_shift", {H}, type)),
        seed(bench.normal({R, C}, type)) {}
  // What the caller may hold beyond the forward pass.
  struct Values {
    Var norm, up, y;
  };
  Values forward(Tape* t, Output output) const {
    const auto p = [t](Parameter& parameter) { return Var::parameter(t, parameter); };
    const Var in = gelu(p(x), output);
    const Var norm = layer_norm(in, p(gain), p(shift), output);
    const Var u = gelu(linear(norm, p(up), p(up_bias)), output);  // (R, H)
    const Var a = matmul(u, p(down)), b = project(u, p(head));    // (R, C) each
    const Var c = matmul(layer_norm(add(u, u), p(h_gain), p(h_shift), output), p(down));
    const Var d = matmul(layer_norm(u, p(h_gain), p(h_shift)), p(down));
    return {norm, u, add(add(a, b), add(c, d))};
  }
  // The value, then all gradients.
  std::vector<std::vector<double>> run(Output output, bool hold = false) const {
    for (Parameter& p : bench.parameters) kernel::fill(0, p.grad);
    Tape tape;
    Values v = forward(&tape, output);
    if (!hold) v.norm = v.up = {};
    std::vector<std::vector<double>> all = {values(v.y.value())};
    Tensor dy = activation_like(seed, seed.shape());
    kernel::copy(seed, dy);
    const Var y = std::exchange(v.y, {});
    tape.backward(y, std::move(dy));
    for (const Parameter& p : bench.parameters) all.push_back(values(p.grad));
    return all;
  }
};

}  // namespace

TEST_CASE("recomputed outputs change no bit of values and gradients, also if other ops use them",
          "[autograd]") {
  Workbench bench;
  const auto type = GENERATE(Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16);
  const Net net(bench, type);
  const auto kept = net.run(Output::kept);
  for (const auto& numbers : kept) CHECK(largest(numbers) > 1e-2);
  CHECK(net.run(Output::recomputed) == kept);
  CHECK(net.run(Output::recomputed, true) == kept);
  kernel::fill(1, net.gain.data);
  CHECK(net.run(Output::recomputed) != kept);
}

TEST_CASE("frozen norms and frozen matrices are recomputed with the same bits", "[autograd]") {
  Workbench bench;
  const Net net(bench, Dtype::f32);
  const auto all = net.run(Output::kept);
  const bool norms = GENERATE(true, false), matrices = GENERATE(true, false),
             input = GENERATE(true, false);
  net.gain.requires_grad = net.shift.requires_grad = !norms;
  net.up.requires_grad = net.head.requires_grad = !matrices;
  net.x.requires_grad = !input;
  const auto kept = net.run(Output::kept);
  CHECK(net.run(Output::recomputed) == kept);
  CHECK((kept == all) == !(norms || matrices || input));
}

TEST_CASE("an output that no weight's gradient needs is not computed again", "[autograd]") {
  Workbench bench;
  const Net net(bench, Dtype::f32);
  Parameter& w = net.up;
  const auto allocations_of_backward = [&](Output output) {
    Tape tape;
    const Var y = matmul(gelu(Var::parameter(&tape, net.x), output), Var::parameter(&tape, w));
    Tensor dy = bench.normal({R, H}, Dtype::f32);
    const int64_t before = bench.memory.allocations();
    tape.backward(y, std::move(dy));
    return bench.memory.allocations() - before;
  };
  const int64_t trained = allocations_of_backward(Output::kept);
  CHECK(allocations_of_backward(Output::recomputed) == trained + 1);
  w.requires_grad = false;
  const int64_t frozen = allocations_of_backward(Output::kept);
  CHECK(allocations_of_backward(Output::recomputed) == frozen);
}

TEST_CASE("an op whose recomputation is wrong gives the weight a wrong gradient", "[autograd]") {
  Workbench bench;
  const Net net(bench, Dtype::f64);
  // gelu, written outside the library; `factor` spoils the value that is computed again.
  const auto gradients = [&](double factor) {
    for (Parameter& p : bench.parameters) kernel::fill(0, p.grad);
    Tape tape;
    const Tensor x = net.x.data;
    const auto compute = [&bench, x](double times) {
      Tensor y = activation_like(x, x.shape());
      kernel::gelu(x, y);
      auto scaled = values(y);
      for (double& v : scaled) v *= times;
      assign(y, scaled);
      return y;
    };
    const Var in = Var::parameter(&tape, net.x);
    const Var g = tape.record(
        compute(1),
        [x, to_x = in.target()](Tensor dy) {
          kernel::gelu_backward(x, dy, dy, Write::set);
          Tape::accumulate(to_x, dy);
        },
        [compute, factor] { return compute(factor); });
    const Var y = matmul(g, Var::parameter(&tape, net.up));
    tape.backward(y, bench.tensor({R, H}, std::vector<double>(R * H, 0.5)));
    return std::pair(values(net.up.grad), values(net.x.grad));
  };
  const auto right = gradients(1), wrong = gradients(1 + 1e-12);
  CHECK(gradients(1) == right);
  CHECK(wrong.first != right.first);
  CHECK(wrong.second == right.second);  // dx does not need the value
  // Outside the mechanism: the formula dW = gelu(x)^T dy.
  const Tensor g = activation_like(net.x.data, {R, C});
  kernel::gelu(net.x.data, g);
  const auto rows = values(g);
  for (size_t c = 0; c < size_t(C); ++c) {
    double sum = 0;
    for (size_t r = 0; r < size_t(R); ++r) sum += 0.5 * rows[r * size_t(C) + c];
    CHECK(std::abs(right.first[c * size_t(H)] - sum) < 1e-14);
  }
}

TEST_CASE("a norm's parameters are looked up again: freed after forward, they give the same bits",
          "[autograd]") {
  Workbench bench;
  const Net net(bench, Dtype::f32);
  const auto data = values(net.shift.data);
  const auto gradient = [&](const std::function<void(Tape&)>& after_forward) {
    kernel::fill(0, net.up.grad);
    Tape tape;
    const Var y = matmul(layer_norm(Var::parameter(&tape, net.x), Var::parameter(&tape, net.gain),
                                    Var::parameter(&tape, net.shift), Output::recomputed),
                         Var::parameter(&tape, net.up));
    after_forward(tape);
    Tensor dy = activation_like(y.value(), {R, H});
    kernel::fill(1, dy);
    tape.backward(y, std::move(dy));
    return values(net.up.grad);
  };
  const auto expected = gradient([](Tape&) {});
  const auto give = [&](const Tensor& t) { net.shift.data = t; };
  const Tensor whole = net.shift.data, other = bench.normal({C}, Dtype::f32);
  CHECK(gradient([&](Tape& t) {
          give({});
          t.hook([&] { give(bench.tensor({C}, data, Dtype::f32)); });
        }) == expected);
  CHECK(gradient([&](Tape& t) { t.hook([&] { give(other); }); }) != expected);
  CHECK_THROWS_WITH(gradient([&](Tape&) { give({}); }), ContainsSubstring("'shift' has no memory"));
  give(whole);
  CHECK_THROWS_WITH(gradient([&](Tape&) { net.shift.usable = false; }),
                    ContainsSubstring("'shift' is used outside its unit"));
}

TEST_CASE("without a tape, and where nothing is recorded, recomputed outputs cost nothing",
          "[autograd]") {
  Workbench bench;
  const Net net(bench, Dtype::f32);
  const auto bytes = [&](Tape* tape, Output output) {
    const Var x = Var::constant(tape, bench.normal({R, C}, Dtype::f32));
    bench.memory.ledger().reset_peak();
    const int64_t before = bench.activation_bytes();
    const Var y = matmul(gelu(x, output), Var::parameter(tape, net.up));
    return std::pair(bench.activation_bytes() - before,
                     bench.memory.ledger().peak(MemoryUse::activation) - before);
  };
  CHECK(bytes(nullptr, Output::recomputed) == bytes(nullptr, Output::kept));
  // x needs no gradient, so gelu records nothing and keeps nothing: matmul keeps gelu's output.
  Tape kept, recomputed;
  const auto with_tape = bytes(&kept, Output::kept);
  CHECK(bytes(&recomputed, Output::recomputed) == with_tape);
  CHECK(with_tape.first == bytes(nullptr, Output::kept).first + R * C * 4);
}

}  // namespace zl
