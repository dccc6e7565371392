// The events of units, and when their parameters may be used.
#include "nn/unit.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "autograd/ops.h"
#include "tests/autograd/gradient_check.h"
#include "tests/autograd/workbench.h"

namespace zl {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Log : UnitObserver {
  std::vector<std::string> lines;
  std::string throw_at;
  void add(const std::string& line) {
    lines.push_back(line);
    if (line == throw_at) throw std::runtime_error(line);
  }
  void before_forward(Unit& u, bool recorded) override {
    add((recorded ? "before_recorded_forward " : "before_forward ") + u.name);
  }
  void after_forward(Unit& u) override { add("after_forward " + u.name); }
  void before_backward(Unit& u) override { add("before_backward " + u.name); }
  void after_backward(Unit& u) override { add("after_backward " + u.name); }
};

// Root around block a and block b; each unit owns one matrix and one bias.
struct ThreeUnits {
  Workbench& bench;
  std::vector<Unit> units;
  Tensor x;
  bool recompute = false;
  explicit ThreeUnits(Workbench& bench) : bench(bench), x(bench.normal({3, 5})) {
    for (const char* unit : {"root", "a", "b"}) {
      units.push_back({.name = unit, .parameters = {}, .index = int(units.size())});
      for (const auto& [parameter, shape] :
           {std::pair<const char*, Shape>{"w", {5, 5}}, {"bias", {5}}}) {
        Parameter& p = bench.parameter(str(unit, ".", parameter), shape);
        p.usable = false;
        units.back().parameters.push_back(&p);
      }
    }
  }
  Var layer(Tape* t, Unit& u, const Var& in) const {
    return gelu(
        linear(in, Var::parameter(t, *u.parameters[0]), Var::parameter(t, *u.parameters[1])));
  }
  Var block(Tape* t, UnitObserver& o, Unit& u, const Var& in,
            const std::function<Var(Tape*, const Var&)>& forward) const {
    return run_unit(t, o, u,
                    [&] { return recompute ? checkpointed(t, o, in, forward) : forward(t, in); });
  }
  // The blocks named by `order`, inside root.
  Var run(Tape* t, UnitObserver& o, const std::vector<int>& order = {1, 2}) {
    return run_unit(t, o, units[0], [&] {
      Var y = layer(t, units[0], Var::constant(t, x));
      for (int i : order)
        y = block(t, o, units[size_t(i)], y, [this, i](Tape* tape, const Var& in) {
          return layer(tape, units[size_t(i)], in);
        });
      return layer(t, units[0], y);
    });
  }
  std::vector<Parameter*> all() const {
    std::vector<Parameter*> list;
    for (const Unit& u : units) list.insert(list.end(), u.parameters.begin(), u.parameters.end());
    return list;
  }
  bool closed() const {
    for (const Parameter* p : all())
      if (p->usable) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("a training pass fires every event once, forward in order and backward reversed",
          "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  model.recompute = GENERATE(false, true);
  Log log;
  Tape tape;
  const Var y = model.run(&tape, log);
  const std::vector<std::string> forward = {
      "before_recorded_forward root",                     //
      "before_recorded_forward a",    "after_forward a",  //
      "before_recorded_forward b",    "after_forward b", "after_forward root"};
  CHECK(log.lines == forward);
  log.lines.clear();
  tape.backward(y, bench.normal({3, 5}));
  CHECK(log.lines == std::vector<std::string>{"before_backward root", "before_backward b",
                                              "after_backward b", "before_backward a",
                                              "after_backward a", "after_backward root"});
  CHECK(model.closed());
}

TEST_CASE("a pass without a tape has the forward events only", "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  model.recompute = GENERATE(false, true);
  Log log;
  const Var y = model.run(nullptr, log);
  CHECK(log.lines == std::vector<std::string>{"before_forward root", "before_forward a",
                                              "after_forward a", "before_forward b",
                                              "after_forward b", "after_forward root"});
  CHECK(model.closed());
}

TEST_CASE("a unit that runs three times has each event three times, and gets the gradient of all",
          "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  model.recompute = GENERATE(false, true);
  Log log;
  const Tensor w = bench.normal({3, 5});
  Tape tape;
  const Var y = model.run(&tape, log, {1, 1, 2, 1});
  tape.backward(y, w);
  CHECK(std::ranges::count(log.lines, "before_recorded_forward a") == 3);
  CHECK(std::ranges::count(log.lines, "after_backward a") == 3);
  UnitObserver no_observer;
  const auto result = check_gradients(model.all(), [&](Tape* t) {
    return weighted_sum(model.run(t, no_observer, {1, 1, 2, 1}), w);
  });
  CAPTURE(result.worst);
  CHECK(result.largest_error < 1e-7);
}

TEST_CASE("a unit that does not run has no events and zero gradients", "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  Log log;
  Tape tape;
  const Var y = model.run(&tape, log, {1});
  tape.backward(y, bench.normal({3, 5}));
  CHECK(std::ranges::count(log.lines, "before_recorded_forward b") +
            std::ranges::count(log.lines, "after_backward b") ==
        0);
  CHECK(largest(values(model.units[2].parameters[0]->grad)) == 0);
  CHECK(largest(values(model.units[1].parameters[0]->grad)) > 0);
}

TEST_CASE("a parameter is refused by name outside its unit, in every pass", "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  UnitObserver no_observer;
  Tape tape;
  Tape* t = GENERATE(true, false) ? &tape : nullptr;
  CHECK_THROWS_WITH(Var::parameter(t, *model.units[1].parameters[0]),
                    ContainsSubstring("'a.w' is used outside its unit"));
  const auto b_uses_a = [&] { return model.layer(t, model.units[1], Var::constant(t, model.x)); };
  CHECK_THROWS_WITH(run_unit(t, no_observer, model.units[2], b_uses_a),
                    ContainsSubstring("is used outside its unit"));
  const auto b_in_a = [&] { return run_unit(t, no_observer, model.units[2], b_uses_a); };
  CHECK_NOTHROW(run_unit(t, no_observer, model.units[1], b_in_a));
  CHECK(model.closed());
}

TEST_CASE("root's parameters are open in its blocks, also when a block is recomputed in backward",
          "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  model.recompute = GENERATE(false, true);
  const Tensor w = bench.normal({3, 5});
  UnitObserver no_observer;
  const auto shared = [&](Tape* t) {
    return run_unit(t, no_observer, model.units[0], [&] {
      const Var x = model.layer(t, model.units[0], Var::constant(t, model.x));
      return model.block(t, no_observer, model.units[1], x, [&model](Tape* tape, const Var& in) {
        return model.layer(tape, model.units[1], model.layer(tape, model.units[0], in));
      });
    });
  };
  const auto result =
      check_gradients(model.all(), [&](Tape* t) { return weighted_sum(shared(t), w); });
  CAPTURE(result.worst);
  CHECK(result.largest_error < 1e-7);
  CHECK(model.closed());
}

TEST_CASE("a unit may run inside itself and stays open until the outer pass ends", "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  UnitObserver no_observer;
  Unit& u = model.units[1];
  run_unit(nullptr, no_observer, u, [&] {
    run_unit(nullptr, no_observer, u, [&] { return Var(); });
    CHECK(u.parameters[0]->usable);
    return Var();
  });
  CHECK_FALSE(u.parameters[0]->usable);
}

TEST_CASE("whatever observer throws, all units are closed and nothing leaks", "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  model.recompute = GENERATE(false, true);
  const Tensor w = bench.normal({3, 5});
  const int64_t baseline = bench.activation_bytes();
  Log probe;
  {
    Tape tape;
    const Var y = model.run(&tape, probe);
    tape.backward(y, w);
  }
  REQUIRE(probe.lines.size() == 12);
  for (const std::string& event : probe.lines) {
    CAPTURE(event);
    Log log;
    log.throw_at = event;
    const auto step = [&] {
      Tape tape;
      const Var y = model.run(&tape, log);
      tape.backward(y, w);
    };
    CHECK_THROWS_AS(step(), std::runtime_error);
    CHECK(log.lines.back() == event);
    CHECK(model.closed());
    CHECK(bench.activation_bytes() == baseline);
  }
}

TEST_CASE("whichever allocation of a recomputed pass fails, all units are closed and nothing leaks",
          "[nn]") {
  Workbench bench;
  ThreeUnits model(bench);
  model.recompute = true;
  const Tensor w = bench.normal({3, 5});
  const int64_t baseline = bench.activation_bytes();
  UnitObserver no_observer;
  bool failed = true;
  int64_t failures = 0;
  while (failed) {
    bench.memory.fail_at(failures + 1);
    try {
      Tape tape;
      const Var y = model.run(&tape, no_observer);
      tape.backward(y, w);
      failed = false;
    } catch (const OutOfMemory&) {
      ++failures;
    }
    CHECK(model.closed());
    CHECK(bench.activation_bytes() == baseline);
  }
  CHECK(failures > 20);
}

}  // namespace zl
