// Every op against its formula in double, its gradients against differences, and every storage type
// against double: on the fast kernels, and on the reference with which all others are compared.
#include "autograd/ops.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/autograd/gradient_check.h"
#include "tests/autograd/naive.h"
#include "tests/autograd/workbench.h"

namespace zl {
namespace {

using Catch::Matchers::EndsWith;
using naive::Vector;

struct OpCase {
  std::string called;
  std::vector<Shape> inputs;
  std::function<Var(const std::vector<Var>&)> op;
  std::function<Vector(const std::vector<Vector>&)> formula;
};

void add_matrix_cases(std::vector<OpCase>& cases) {
  for (const auto& [R, I, O] :
       {std::array<int64_t, 3>{1, 1, 1}, {15, 7, 11}, {9, 65, 31}, {33, 300, 5}}) {
    cases.push_back({str("linear (", R, ", ", I, ")(", I, ", ", O, ")"),
                     {{R, I}, {I, O}, {O}},
                     [](const auto& v) { return linear(v[0], v[1], v[2]); },
                     [](const auto& v) { return naive::linear(v[0], v[1], v[2]); }});
    cases.push_back(
        {str("matmul (", R, ", ", I, ")(", I, ", ", O, ")"),
         {{R, I}, {I, O}},
         [](const auto& v) { return matmul(v[0], v[1]); },
         [R = R, I = I, O = O](const auto& v) { return naive::matmul(v[0], v[1], R, I, O); }});
    cases.push_back({str("project (", R, ", ", I, ")(", O, ", ", I, ")"),
                     {{R, I}, {O, I}},
                     [](const auto& v) { return project(v[0], v[1]); },
                     [R = R, I = I, O = O](const auto& v) {
                       return naive::matmul(v[0], v[1], R, I, O, true);
                     }});
  }
  for (const auto& s :
       {naive::AttentionShape{1, 1, 1, 1}, {2, 5, 3, 5}, {1, 67, 2, 8}, {2, 33, 1, 17}})
    cases.push_back({str("attention B ", s.B, " T ", s.T, " H ", s.H, " D ", s.D),
                     {{s.B, s.T, 3 * s.H * s.D}},
                     [s](const auto& v) { return attention(v[0], s.H); },
                     [s](const auto& v) { return naive::attention(v[0], s); }});
}

std::vector<OpCase> op_cases(Workbench& bench) {
  std::vector<OpCase> cases;
  add_matrix_cases(cases);
  cases.push_back({"add",
                   {{3, 5, 7}, {3, 5, 7}},
                   [](const auto& v) { return add(v[0], v[1]); },
                   [](const auto& v) {
                     Vector y = v[0];
                     for (size_t i = 0; i < y.size(); ++i) y[i] += v[1][i];
                     return y;
                   }});
  cases.push_back({"gelu",
                   {{3, 5, 7}},
                   [](const auto& v) { return gelu(v[0]); },
                   [](const auto& v) { return naive::gelu(v[0]); }});
  for (int64_t C : {2, 7, 33, 129})
    cases.push_back({str("layer_norm of rows of ", C),
                     {{5, C}, {C}, {C}},
                     [](const auto& v) { return layer_norm(v[0], v[1], v[2]); },
                     [](const auto& v) { return naive::layer_norm(v[0], v[1], v[2], 1e-5); }});
  cases.push_back({"add_positions",
                   {{3, 5, 7}, {9, 7}},
                   [](const auto& v) { return add_positions(v[0], v[1]); },
                   [](const auto& v) { return naive::add_positions(v[0], v[1], 5, 7); }});
  const Tensor ids = bench.ids({3, 5}, 6);  // some twice, some never
  cases.push_back({"embedding",
                   {{11, 7}},
                   [ids](const auto& v) { return embedding(ids, v[0]); },
                   [ids](const auto& v) { return naive::embedding(values(ids), v[0], 7); }});
  for (int64_t V : {2, 13, 67, 261}) {
    const Tensor targets = bench.ids({3, 5}, V);
    cases.push_back(
        {str("cross_entropy of ", V, " tokens"),
         {{3, 5, V}},
         [targets](const auto& v) { return cross_entropy(v[0], targets); },
         [targets](const auto& v) { return Vector{naive::cross_entropy(v[0], values(targets))}; }});
  }
  return cases;
}

// Leaves in f64 with values that `type` holds exactly.
std::vector<Parameter*> leaves(Workbench& bench, const OpCase& c, Dtype type) {
  std::vector<Parameter*> all;
  for (const Shape& shape : c.inputs) {
    Parameter& p = bench.parameter(str(c.called, ", input ", all.size()), shape);
    const Tensor rounded = Tensor::empty(bench.memory, MemoryUse::activation, shape, type);
    kernel::copy(p.data, rounded);
    kernel::copy(rounded, p.data);
    all.push_back(&p);
  }
  return all;
}

// `through_entries`: each input is the value of an entry of the tape rather than a leaf.
std::vector<Var> inputs(Workbench& bench, Tape* tape, const std::vector<Parameter*>& from,
                        bool through_entries) {
  std::vector<Var> v;
  for (Parameter* p : from) {
    v.push_back(Var::parameter(tape, *p));
    if (!through_entries) continue;
    const Tensor zero =
        Tensor::zeros(bench.memory, MemoryUse::activation, p->shape, p->data.dtype());
    v.back() = add(v.back(), Var::constant(tape, zero));
  }
  return v;
}

struct Result {
  Vector y;
  std::vector<Vector> gradients;
};

// The op and its gradients for `seed`, on copies of the leaves in `type`.
Result run_as(Workbench& bench, const OpCase& c, const std::vector<Parameter*>& from, Dtype type,
              const Vector& seed, bool through_entries) {
  std::deque<Parameter> typed;
  std::vector<Parameter*> all;
  for (const Parameter* p : from) {
    typed.push_back({.name = p->name, .shape = p->shape});
    typed.back().data = bench.tensor(p->shape, values(p->data), type);
    typed.back().grad = Tensor::zeros(bench.memory, MemoryUse::gradient, p->shape, type);
    all.push_back(&typed.back());
  }
  Tape tape;
  const Var y = c.op(inputs(bench, &tape, all, through_entries));
  tape.backward(y, bench.tensor(y.value().shape(), seed, y.value().dtype()));
  Result result{values(y.value()), {}};
  for (const Parameter& p : typed) result.gradients.push_back(values(p.grad));
  return result;
}

Vector seed_for(Workbench& bench, const Vector& y, Dtype type) {
  Tensor w =
      bench.normal({int64_t(y.size())}, y.size() == 1 && type != Dtype::f64 ? Dtype::f32 : type);
  return values(w);
}

double unit_roundoff(Dtype t) {
  return t == Dtype::f64 ? 0x1p-53 : t == Dtype::f32 ? 0x1p-24 : t == Dtype::f16 ? 0x1p-11 : 0x1p-8;
}

}  // namespace

TEST_CASE("every op in f64 agrees with its formula", "[autograd]") {
  Workbench bench{test::any_host_backend()};
  for (const OpCase& c : op_cases(bench)) {
    CAPTURE(c.called);
    const auto from = leaves(bench, c, Dtype::f64);
    std::vector<Vector> host;
    for (const Parameter* p : from) host.push_back(values(p->data));
    const Vector expected = c.formula(host),
                 y = values(c.op(inputs(bench, nullptr, from, false)).value());
    CHECK(largest_difference(y, expected) <= 1e-13 * (1 + largest(expected)));
    for (double& x : host[0]) x *= 1.01;  // the comparison compares something
    CHECK((c.inputs[0] == Shape{1, 1, 3} || largest_difference(y, c.formula(host)) > 1e-7));
  }
}

TEST_CASE("the gradients of every op in f64 agree with central differences", "[autograd]") {
  Workbench bench{test::any_host_backend()};
  const bool through_entries = GENERATE(false, true);
  for (const OpCase& c : op_cases(bench)) {
    CAPTURE(c.called, through_entries);
    const auto from = leaves(bench, c, Dtype::f64);
    const Tensor w = bench.normal(c.op(inputs(bench, nullptr, from, false)).value().shape());
    const auto loss = [&](Tape* tape) {
      return weighted_sum(c.op(inputs(bench, tape, from, through_entries)), w);
    };
    const auto result = check_gradients(from, loss, numel(c.inputs[0]) > 500 ? 101 : 1);
    CAPTURE(result.worst);
    CHECK(result.elements > 0);
    CHECK(result.largest_error < 1e-7);
  }
}

TEST_CASE("every op in f32, bf16 and f16 rounds like the type of its storage", "[autograd]") {
  Workbench bench{test::any_host_backend()};
  const Dtype type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  for (const OpCase& c : op_cases(bench)) {
    CAPTURE(c.called, name(type));
    const auto from = leaves(bench, c, type);
    std::vector<Vector> host;
    for (const Parameter* p : from) host.push_back(values(p->data));
    const Vector y = c.formula(host), seed = seed_for(bench, y, type);
    const Result exact = run_as(bench, c, from, Dtype::f64, seed, false),
                 rounded = run_as(bench, c, from, type, seed, false);
    // Two roundings to the type (matmul, then bias), and those of an fp32 sum.
    const double u = unit_roundoff(type), sums = 64 * 0x1p-24;
    CHECK(largest_difference(rounded.y, y) <= (2 * u + sums) * (largest(y) + 1));
    for (size_t i = 0; i < from.size(); ++i) {
      CAPTURE(from[i]->name);
      CHECK(largest_difference(rounded.gradients[i], exact.gradients[i]) <=
            (4 * u + sums) * (largest(exact.gradients[i]) + 1));
    }
  }
}

TEST_CASE("a 16-bit type rounds visibly", "[autograd]") {
  Workbench bench;
  const auto cases = op_cases(bench);
  const auto& c = *std::ranges::find(cases, "gelu", &OpCase::called);
  const auto from = leaves(bench, c, Dtype::bf16);
  const Vector seed = seed_for(bench, Vector(105), Dtype::bf16);
  const Result exact = run_as(bench, c, from, Dtype::f64, seed, false),
               rounded = run_as(bench, c, from, Dtype::bf16, seed, false);
  CHECK(largest_difference(rounded.y, exact.y) > 0x1p-12);
  CHECK(largest_difference(rounded.gradients[0], exact.gradients[0]) > 0x1p-12);
}

TEST_CASE("an input that is an entry of the tape gets the bits of an input that is a leaf",
          "[autograd]") {
  Workbench bench;
  const Dtype type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  for (const OpCase& c : op_cases(bench)) {
    CAPTURE(c.called, name(type));
    const auto from = leaves(bench, c, type);
    const Vector seed =
        seed_for(bench, values(c.op(inputs(bench, nullptr, from, false)).value()), type);
    const Result leaf = run_as(bench, c, from, type, seed, false),
                 entry = run_as(bench, c, from, type, seed, true);
    CHECK(leaf.y == entry.y);
    CHECK(leaf.gradients == entry.gradients);
  }
}

TEST_CASE("the gradient check notices a backward that is wrong in one element", "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("p", {5});
  const Tensor w = bench.normal({5});
  const double wrong = GENERATE(0.0, 0.001, NAN);
  const auto loss = [&](Tape* tape) {
    const Var x = Var::parameter(tape, p);
    Tensor y = activation_like(x.value(), {5});
    kernel::copy(x.value(), y);
    if (!tape) return weighted_sum(Var::constant(nullptr, y), w);
    return weighted_sum(tape->record(y,
                                     [&, to = x.target()](Tensor dy) {
                                       auto g = values(dy);
                                       g[1] += wrong;
                                       Tape::accumulate(to, bench.tensor({5}, g));
                                     }),
                        w);
  };
  const auto result = check_gradients({&p}, loss);
  CAPTURE(result.worst);
  if (wrong == 0) {
    CHECK(result.largest_error < 1e-8);
  } else {
    CHECK_FALSE(result.largest_error < 0.0005);
    CHECK(result.worst.substr(0, 4) == "p[1]");
  }
}

TEST_CASE("the gradient check looks at every stride-th element and leaves the values as they were",
          "[autograd]") {
  Workbench bench;
  Parameter& p = bench.parameter("p", {10});
  const Vector before = values(p.data);
  const Tensor w = bench.normal({10});
  CHECK(check_gradients(
            {&p}, [&](Tape* t) { return weighted_sum(gelu(Var::parameter(t, p)), w); }, 3)
            .elements == 4);
  CHECK(values(p.data) == before);
}

TEST_CASE("operands that do not fit are refused with both shapes", "[autograd]") {
  Workbench bench;
  Tape tape;
  const auto p = [&](Shape shape) {
    return Var::parameter(&tape, bench.parameter("p", std::move(shape)));
  };
  CHECK_THROWS_AS(linear(p({2, 3}), p({4, 5}), p({5})), std::invalid_argument);
  CHECK_THROWS_AS(linear(p({2, 3}), p({3, 5}), p({4})), std::invalid_argument);
  CHECK_THROWS_AS(matmul(p({2, 3}), p({4, 5})), std::invalid_argument);
  CHECK_THROWS_AS(project(p({2, 3}), p({5, 4})), std::invalid_argument);
  CHECK_THROWS_AS(add(p({2, 3}), p({2, 4})), std::invalid_argument);
  CHECK_THROWS_AS(layer_norm(p({2, 3}), p({4}), p({3})), std::invalid_argument);
  CHECK_THROWS_AS(attention(p({2, 3, 9}), 2), std::invalid_argument);
  CHECK_THROWS_AS(attention(p({6, 9}), 1), std::invalid_argument);
  CHECK_THROWS_AS(add_positions(p({2, 5, 3}), p({4, 3})), std::invalid_argument);
  CHECK_THROWS_AS(cross_entropy(p({2, 3, 7}), bench.ids({5}, 7)), std::invalid_argument);
  CHECK_THROWS_AS(embedding(bench.normal({3}), p({7, 2})), std::invalid_argument);
  CHECK(tape.entries() == 0);
}

TEST_CASE("an error about shapes names the parameters", "[autograd]") {
  Workbench bench;
  Tape tape;
  const auto p = [&](const char* name, Shape shape) {
    return Var::parameter(&tape, bench.parameter(name, std::move(shape)));
  };
  const Var x = Var::constant(&tape, bench.normal({8, 4}));
  CHECK_THROWS_WITH(linear(x, p("layer0.w", {4, 16}), p("layer0.b", {8})),
                    EndsWith("; parameters: 'layer0.w' (4, 16), 'layer0.b' (8)"));
  CHECK_THROWS_WITH(matmul(x, p("layer1.w", {5, 16})),
                    EndsWith("; parameters: 'layer1.w' (5, 16)"));
  CHECK_THROWS_WITH(layer_norm(x, p("norm.weight", {4}), p("norm.bias", {5})),
                    EndsWith("; parameters: 'norm.weight' (4), 'norm.bias' (5)"));
  CHECK_THROWS_WITH(add(x, Var::constant(&tape, bench.normal({8, 5}))),
                    "add: (8, 4) f64 does not match (8, 5) f64");  // no parameter to name
}

}  // namespace zl
