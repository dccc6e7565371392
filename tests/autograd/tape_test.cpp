// What the tape promises about values that are used several times, not at all, or after they are
// gone.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "autograd/ops.h"
#include "tests/autograd/workbench.h"

namespace zl {
namespace {

using Catch::Matchers::ContainsSubstring;

// The gradient of p in sum(w * y) for the y that `build` makes.
std::vector<double> gradient(Workbench& bench, Parameter& p,
                             const std::function<Var(Tape&)>& build) {
  kernel::fill(0, p.grad);
  Tape tape;
  const Var y = build(tape);
  tape.backward(
      y, bench.tensor(y.value().shape(), std::vector<double>(size_t(y.value().numel()), 1.0)));
  return values(p.grad);
}

}  // namespace

TEST_CASE("a tied weight gets the sum of the gradients of its two uses", "[autograd]") {
  Workbench bench;
  Parameter& tied = bench.parameter("wte", {11, 7});
  Parameter& other = bench.parameter("head", {11, 7});
  kernel::copy(tied.data, other.data);
  const Tensor ids = bench.ids({3, 5}, 11), targets = bench.ids({3, 5}, 11);
  const auto loss = [&](Tape* tape, Parameter& in, Parameter& out) {
    return cross_entropy(
        project(gelu(embedding(ids, Var::parameter(tape, in))), Var::parameter(tape, out)),
        targets);
  };
  const auto both = gradient(bench, tied, [&](Tape& t) { return loss(&t, tied, tied); });
  const auto first = gradient(bench, tied, [&](Tape& t) { return loss(&t, tied, other); });
  const auto second = gradient(bench, tied, [&](Tape& t) { return loss(&t, other, tied); });
  std::vector<double> sum;
  for (size_t i = 0; i < both.size(); ++i) sum.push_back(first[i] + second[i]);
  CHECK(largest_difference(both, sum) < 1e-15);
  CHECK(largest_difference(both, first) > 1e-3);
  CHECK(largest_difference(both, second) > 1e-3);
}

TEST_CASE("a value that needs no gradient has no gradient buffer", "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("w", {3});
  Tape tape;
  tape.record(p.data, [](Tensor) {});
  CHECK(Tape::slot(Var::parameter(&tape, p).target(), {3}, p.data).tensor.same_storage(p.grad));
  p.requires_grad = false;
  for (const Var& v : {Var::parameter(&tape, p), Var::constant(&tape, p.data), Var()})
    CHECK_THROWS_WITH(Tape::slot(v.target(), {3}, p.data), ContainsSubstring("needs no gradient"));
}

TEST_CASE("an unused parameter has a gradient of zero", "[autograd]") {
  Workbench bench;
  Parameter &used = bench.parameter("used", {5}), &unused = bench.parameter("unused", {5});
  const auto g = gradient(bench, used, [&](Tape& t) {
    gelu(Var::parameter(&t, unused));  // computed, but not part of the result
    return gelu(Var::parameter(&t, used));
  });
  CHECK(largest(g) > 0);
  CHECK(values(unused.grad) == std::vector<double>(5, 0.0));
}

TEST_CASE("an input without gradient costs no entry and no gradient", "[autograd]") {
  Workbench bench;
  Tape tape;
  const Var x = Var::constant(&tape, bench.normal({3, 7}));
  const Var y = gelu(add(x, x));
  CHECK(tape.entries() == 0);
  CHECK_FALSE(y.needs_gradient());
  Parameter &w = bench.parameter("w", {7, 2}), &b = bench.parameter("b", {2});
  const Var z = linear(y, Var::parameter(&tape, w), Var::parameter(&tape, b));
  CHECK(tape.entries() == 1);
  tape.backward(z, bench.normal({3, 2}));
  CHECK(largest(values(w.grad)) > 0);
}

TEST_CASE("every use of an activation counts", "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("p", {5});
  const int uses = GENERATE(1, 2, 3, 4);
  const auto g = gradient(bench, p, [&](Tape& t) {
    const Var zero = Var::constant(&t, bench.tensor({5}, std::vector<double>(5, 0.0)));
    const Var x = add(Var::parameter(&t, p), zero);
    Var sum = x;
    for (int i = 1; i < uses; ++i) sum = add(sum, x);
    return sum;
  });
  CHECK(g == std::vector<double>(5, double(uses)));
}

TEST_CASE("backward refuses what is not on its tape", "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("p", {5});
  Tape tape, foreign;
  const Var y = gelu(Var::parameter(&tape, p));
  const Tensor seed = bench.normal({5});
  CHECK_THROWS_WITH(foreign.backward(y, seed), ContainsSubstring("not on this tape"));
  CHECK_THROWS_WITH(tape.backward(Var::constant(&tape, seed), seed),
                    ContainsSubstring("not on this tape"));
  CHECK_THROWS_WITH(tape.backward(y, bench.normal({4})),
                    ContainsSubstring("(4)") && ContainsSubstring("(5)"));
  CHECK(tape.entries() == 1);
  tape.backward(y, seed);
  CHECK(tape.entries() == 0);
  CHECK_THROWS_WITH(tape.backward(y, seed), ContainsSubstring("uses a tape up"));
  const Var late = gelu(y);
  CHECK_THROWS_WITH(tape.backward(late, seed), ContainsSubstring("no longer on its tape"));
}

TEST_CASE("the seed that the caller still holds is not changed", "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("p", {5});
  Tape tape;
  const Tensor seed = bench.normal({5});
  const auto before = values(seed);
  const Var y = gelu(gelu(add(Var::parameter(&tape, p), Var::parameter(&tape, p))));
  tape.backward(y, seed);
  CHECK(values(seed) == before);
  CHECK(largest_difference(values(p.grad), before) > 1e-3);
}

TEST_CASE("cross-entropy overwrites the logits only if it has the only handle", "[autograd]") {
  Workbench bench;
  Parameter &w = bench.parameter("w", {11, 7}), &x = bench.parameter("x", {3, 7});
  const Tensor targets = bench.ids({3}, 11);
  const auto allocations_of_backward = [&](bool held) {
    Tape tape;
    Var logits = project(Var::parameter(&tape, x), Var::parameter(&tape, w));
    const auto before = values(logits.value());
    const Var loss = cross_entropy(logits, targets);
    if (!held) logits = {};
    const Tensor seed = bench.tensor({1}, {1.0});
    const int64_t allocations = bench.memory.allocations();
    tape.backward(loss, seed);
    if (held) CHECK(values(logits.value()) == before);
    return bench.memory.allocations() - allocations;
  };
  const int64_t held = allocations_of_backward(true), alone = allocations_of_backward(false);
  CHECK(held == alone + 1);
}

TEST_CASE("marks fire exactly once, from the last to the first, whatever needs a gradient",
          "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("p", {5});
  std::vector<int> fired;
  Tape tape;
  tape.hook([&] { fired.push_back(0); });
  const Var x = gelu(Var::parameter(&tape, p));
  tape.hook([&] { fired.push_back(1); });
  gelu(x);  // leads nowhere
  tape.hook([&] { fired.push_back(2); });
  const Var y = gelu(x);
  tape.hook([&] { fired.push_back(3); });
  const Var z = gelu(y);
  tape.hook([&] { fired.push_back(4); });  // after the value that backward starts from
  tape.backward(z, bench.normal({5}));
  CHECK(fired == std::vector<int>{4, 3, 2, 1, 0});
}

TEST_CASE("when a mark fires, the gradients of what came after it are complete", "[autograd]") {
  Workbench bench;
  Parameter &early = bench.parameter("early", {5}), &late = bench.parameter("late", {5});
  std::vector<std::vector<double>> seen;
  Tape tape;
  Var x = gelu(Var::parameter(&tape, early));
  tape.hook([&] { seen = {values(early.grad), values(late.grad)}; });
  x = add(x, gelu(Var::parameter(&tape, late)));
  tape.backward(x, bench.normal({5}));
  CHECK(seen.at(0) == std::vector<double>(5, 0.0));
  CHECK(seen.at(1) == values(late.grad));
  CHECK(largest(seen.at(1)) > 0);
  CHECK(largest(values(early.grad)) > 0);
}

TEST_CASE(
    "a parameter is looked up by name: gathered elsewhere before backward, it gives the same bits",
    "[autograd]") {
  Workbench bench;
  Parameter &w = bench.parameter("w", {7, 3}), &b = bench.parameter("b", {3}),
            &x = bench.parameter("x", {2, 7});
  const auto build = [&](Tape& t) {
    return linear(Var::parameter(&t, x), Var::parameter(&t, w), Var::parameter(&t, b));
  };
  const auto expected = gradient(bench, x, build);
  const auto data = values(w.data);
  const auto gathered = gradient(bench, x, [&](Tape& t) {
    const Var y = build(t);
    w.data = {};
    t.hook([&] { w.data = bench.tensor({7, 3}, data); });
    return y;
  });
  CHECK(gathered == expected);
  const auto changed = gradient(bench, x, [&](Tape& t) {
    const Var y = build(t);
    t.hook([&] { w.data = bench.normal({7, 3}); });
    return y;
  });
  CHECK(changed != expected);
}

TEST_CASE("a parameter without memory is refused by name, in forward and in backward",
          "[autograd]") {
  Workbench bench;
  Parameter &w = bench.parameter("h.3.w", {7, 3}), &b = bench.parameter("b", {3}),
            &x = bench.parameter("x", {2, 7});
  Tape tape;
  const Var y =
      linear(Var::parameter(&tape, x), Var::parameter(&tape, w), Var::parameter(&tape, b));
  const Tensor data = std::exchange(w.data, {});
  CHECK_THROWS_WITH(tape.backward(y, bench.normal({2, 3})),
                    ContainsSubstring("'h.3.w' has no memory"));
  CHECK(tape.entries() == 0);
  CHECK_THROWS_WITH(gelu(Var::parameter(&tape, w)), ContainsSubstring("'h.3.w' has no memory"));
  w.data = data;
  w.grad = {};
  const Var z =
      linear(Var::parameter(&tape, x), Var::parameter(&tape, w), Var::parameter(&tape, b));
  CHECK_THROWS_WITH(tape.backward(z, bench.normal({2, 3})),
                    ContainsSubstring("'h.3.w' has no gradient buffer"));
}

}  // namespace zl
