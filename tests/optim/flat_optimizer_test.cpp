// Properties of every optimizer on a flat range: slices, decay ranges, master copies, bytes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/optim/flat_values.h"
#include "tests/tensor/cpu_case.h"

namespace zl {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::same_bits;

constexpr int64_t kWhole = 64 + 131;

struct Updates {
  Workbench& bench;
  OptimizerConfig config;
  Dtype type;
  std::vector<Tensor> gradients;
  Updates(Workbench& bench, OptimizerConfig config, Dtype type)
      : bench(bench), config(std::move(config)), type(type) {
    for (int64_t s = 0; s < 3; ++s)
      gradients.push_back(bench.tensor({kWhole}, gradient_values(kWhole, s), type));
  }
  Tensor start() const {
    const Tensor p = Tensor::empty(bench.memory, MemoryUse::parameter, {kWhole}, type);
    kernel::normal({.seed = 3}, 0, p);
    return p;
  }
  // Three updates of elements [begin, begin + n), by the gradients from `from` on. Returns all
  // elements.
  Tensor run(int64_t begin, int64_t n, int64_t from) const {
    const Tensor p = start(), own = p.slice(begin, {n});
    FlatOptimizer optimizer(bench.memory, n, type, config);
    if (optimizer.master().defined()) kernel::copy(own, optimizer.master());
    for (const Tensor& g : gradients) optimizer.update(own, g.slice(from, {n}), 0.01, 0.7f);
    return p;
  }
};

}  // namespace

TEST_CASE(
    "updating a range gives the bits of the slice of a full update, for all offsets and lengths",
    "[optim]") {
  Workbench bench;
  const auto kind = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd);
  const auto type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  CAPTURE(int(kind), name(type));
  const Updates updates(bench, {.kind = kind, .weight_decay = 0.1, .momentum = 0.9}, type);
  const Tensor whole = updates.run(0, kWhole, 0), untouched = updates.start();
  int64_t different = 0;
  for (int64_t begin = 0; begin < 64; ++begin)
    for (int64_t n = 0; n <= 130; ++n) {
      const Tensor p = updates.run(begin, n, begin);
      const int64_t end = begin + n;
      different += !same_bits(p.slice(begin, {n}), whole.slice(begin, {n})) ||
                   !same_bits(p.slice(0, {begin}), untouched.slice(0, {begin})) ||
                   !same_bits(p.slice(end, {kWhole - end}), untouched.slice(end, {kWhole - end}));
    }
  CHECK(different == 0);
  CHECK_FALSE(same_bits(updates.run(5, 100, 6).slice(5, {100}),
                        whole.slice(5, {100})));  // the neighbours' gradients
}

TEST_CASE("decay ranges give the bits of an optimizer per range", "[optim]") {
  Workbench bench;
  const auto kind = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd);
  // A unit of four parameters; the globs exempt two of them.
  const std::vector<std::pair<std::string, int64_t>> unit = {{"h.0.ln_1.weight", 16},
                                                             {"h.0.attn.c_attn.weight", 113},
                                                             {"h.0.attn.c_attn.bias", 17},
                                                             {"h.0.mlp.c_fc.weight", 49}};
  const OptimizerConfig config{.kind = kind,
                               .weight_decay = 0.3,
                               .momentum = 0.9,
                               .no_weight_decay = {"*.bias", "*.ln_?.*"}};
  std::vector<ParameterGroup> ranges;
  int64_t end = 0;
  for (const auto& [parameter, n] : unit) {
    bool spared = false;
    for (const std::string& glob : config.no_weight_decay)
      spared = spared || matches_glob(glob, parameter);
    ranges.push_back({end, end + n, spared ? 0 : config.weight_decay});
    end += n;
  }
  REQUIRE(end == kWhole);
  CHECK(ranges[0].weight_decay == 0);
  CHECK(ranges[1].weight_decay == 0.3);
  CHECK(ranges[2].weight_decay == 0);
  CHECK(ranges[3].weight_decay == 0.3);

  const Updates updates(bench, config, Dtype::f32);
  const Tensor p = updates.start();
  FlatOptimizer together(bench.memory, kWhole, Dtype::f32, config, ranges);
  for (const Tensor& g : updates.gradients) together.update(p, g, 0.01, 0.7f);
  CHECK(together.steps() == 3);  // one call is one step, for any number of ranges
  for (const ParameterGroup& r : ranges) {
    Updates alone = updates;
    alone.config.weight_decay = r.weight_decay;
    const int64_t n = r.end - r.begin;
    CHECK(same_bits(p.slice(r.begin, {n}), alone.run(r.begin, n, r.begin).slice(r.begin, {n})));
    alone.config.weight_decay = 0.3 - r.weight_decay;
    CHECK_FALSE(
        same_bits(p.slice(r.begin, {n}), alone.run(r.begin, n, r.begin).slice(r.begin, {n})));
  }
}

TEST_CASE("decay ranges must cover the range in order", "[optim]") {
  Workbench bench;
  const auto make = [&](std::vector<ParameterGroup> ranges) {
    FlatOptimizer(bench.memory, 10, Dtype::f32, {}, std::move(ranges));
  };
  CHECK_NOTHROW(make({{0, 4, 0.1}, {4, 4, 0}, {4, 10, 0}}));
  CHECK_THROWS_WITH(make({{0, 4, 0.1}, {5, 10, 0}}), ContainsSubstring("must begin at 4"));
  CHECK_THROWS_WITH(make({{0, 6, 0.1}, {5, 10, 0}}), ContainsSubstring("must begin at 6"));
  CHECK_THROWS_WITH(make({{0, 9, 0.1}}), ContainsSubstring("cover 9 of 10"));
  CHECK_THROWS_WITH(make({{0, 11, 0.1}}), ContainsSubstring("cover 11 of 10"));
}

TEST_CASE("a separate fp32 master copy changes no bit of fp32 parameters", "[optim]") {
  Workbench bench;
  OptimizerConfig config{.lr = 0.01, .weight_decay = 0.1};
  config.kind = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd);
  const auto type = GENERATE(Dtype::f32, Dtype::f64);
  const Run without = run_optimizer(bench, config, 37, 20, type);
  config.separate_master = true;
  const Run with = run_optimizer(bench, config, 37, 20, type);
  CHECK(with.parameters == without.parameters);
  CHECK(with.master == with.parameters);
  CHECK(without.master.empty());
}

TEST_CASE(
    "16-bit parameters are the rounding of their fp32 master copy, which sees updates they do not",
    "[optim]") {
  Workbench bench;
  const auto type = GENERATE(Dtype::bf16, Dtype::f16);
  const Run run = run_optimizer(bench, {.lr = 1e-3}, 37, 20, type);
  CHECK(run.parameters == values(bench.tensor({37}, run.master, type)));
  CHECK(run.parameters != run.master);
  // A step of 1e-5 is rounded away in a 1 of bf16 or f16, but the master copy accumulates 1,000
  // steps.
  const Tensor p = bench.tensor({1}, {1}, type), g = bench.tensor({1}, {1}, type);
  FlatOptimizer optimizer(bench.memory, 1, type, {.kind = OptimizerKind::sgd});
  if (optimizer.master().defined()) kernel::copy(p, optimizer.master());
  optimizer.update(p, g, 1e-5, 1);
  CHECK(values(p)[0] == 1);
  for (int i = 1; i < 1000; ++i) optimizer.update(p, g, 1e-5, 1);
  CHECK(std::abs(values(p)[0] - 0.99) < 0x1p-8);
  CHECK(values(p)[0] < 1);
}

TEST_CASE("state and master copy cost the bytes that optimizer_bytes says, and start from zero",
          "[optim]") {
  Workbench bench;
  OptimizerConfig config{.kind = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd)};
  config.momentum = GENERATE(0.0, 0.9);
  config.separate_master = GENERATE(false, true);
  const auto type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  const OptimizerBytes bytes = optimizer_bytes(config, type);
  const MemoryLedger& ledger = bench.memory.ledger();
  {
    FlatOptimizer optimizer(bench.memory, 1001, type, config);
    CHECK(ledger.live(MemoryUse::optimizer_state) == 1001 * bytes.state);
    CHECK(ledger.live(MemoryUse::master_weights) == 1001 * bytes.master);
    CHECK(optimizer.steps() == 0);
    CHECK(optimizer.numel() == 1001);
    const int64_t before = ledger.peak_total();
    const Tensor p = Tensor::zeros(bench.memory, MemoryUse::parameter, {1001}, type);
    optimizer.update(p, p, 0.1, 1);  // zero gradients move nothing
    CHECK(largest(values(p)) == 0);
    CHECK(ledger.peak_total() == before + p.bytes());  // an update allocates nothing
  }
  CHECK(ledger.live_total() == 0);
}

TEST_CASE("Adam in fp32 costs 8 bytes of state, in mixed precision 8 and 4 of master weights",
          "[optim]") {
  const auto adam = optimizer_bytes({}, Dtype::f32), mixed = optimizer_bytes({}, Dtype::bf16);
  CHECK((adam.state == 8 && adam.master == 0));
  CHECK((mixed.state == 8 && mixed.master == 4));
  CHECK(optimizer_bytes({.separate_master = true}, Dtype::f32).master == 4);
  CHECK(optimizer_bytes({.kind = OptimizerKind::sgd}, Dtype::f32).state == 0);
}

TEST_CASE("an optimizer that does not fit throws OutOfMemory and leaves nothing", "[optim]") {
  Workbench bench;
  const int64_t k = GENERATE(1, 2, 3);
  bench.memory.fail_at(k);
  CHECK_THROWS_AS(FlatOptimizer(bench.memory, 100, Dtype::bf16, {}), OutOfMemory);
  CHECK(bench.memory.ledger().live_total() == 0);
}

TEST_CASE("an update of something else than the range is refused", "[optim]") {
  Workbench bench;
  FlatOptimizer optimizer(bench.memory, 10, Dtype::f32, {});
  const Tensor ten = bench.normal({10}, Dtype::f32), nine = bench.normal({9}, Dtype::f32),
               wide = bench.normal({10}, Dtype::f64);
  CHECK_THROWS_AS(optimizer.update(nine, ten, 0.1, 1), std::invalid_argument);
  CHECK_THROWS_AS(optimizer.update(ten, nine, 0.1, 1), std::invalid_argument);
  CHECK_THROWS_AS(optimizer.update(wide, ten, 0.1, 1), std::invalid_argument);
  CHECK(optimizer.steps() == 0);
}

TEST_CASE("settings that torch refuses are refused", "[optim]") {
  Workbench bench;
  const auto make = [&](const OptimizerConfig& c) {
    FlatOptimizer(bench.memory, 1, Dtype::f32, c);
  };
  const auto sgd = OptimizerKind::sgd;
  CHECK_THROWS_AS(make({.beta1 = 1.0}), InputError);
  CHECK_THROWS_AS(make({.beta2 = -0.1}), InputError);
  CHECK_THROWS_AS(make({.eps = -1e-8}), InputError);
  CHECK_THROWS_AS(make({.weight_decay = -1}), InputError);
  CHECK_THROWS_AS(make({.kind = sgd, .momentum = -1}), InputError);
  CHECK_THROWS_AS(make({.kind = sgd, .nesterov = true}), InputError);
  CHECK_THROWS_AS(make({.kind = sgd, .momentum = 0.9, .dampening = 0.1, .nesterov = true}),
                  InputError);
  CHECK_NOTHROW(make({.kind = sgd, .momentum = 0.9, .nesterov = true}));
}

TEST_CASE("a glob must match the complete name", "[optim]") {
  const std::pair<const char*, const char*> right[] = {{"*", ""},
                                                       {"*", "wte.weight"},
                                                       {"*.bias", "h.0.ln_1.bias"},
                                                       {"h.?.ln_*", "h.3.ln_1.weight"},
                                                       {"*ln*weight*", "h.3.ln_1.weight"},
                                                       {"a*b*c", "a_b_b_c"},
                                                       {"wte.weight", "wte.weight"},
                                                       {"", ""}},
                                            wrong[] = {{"", "a"},
                                                       {"?", ""},
                                                       {"bias", "h.0.ln_1.bias"},
                                                       {"*.bias", "bias"},
                                                       {"h.?.ln_*", "h.12.ln_1.weight"},
                                                       {"a*b", "a_b_c"},
                                                       {"h.0.*", "h.00"}};
  for (const auto& [glob, text] : right) CHECK(matches_glob(glob, text));
  for (const auto& [glob, text] : wrong) CHECK_FALSE(matches_glob(glob, text));
}

}  // namespace zl
