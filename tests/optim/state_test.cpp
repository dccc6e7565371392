// Saving and restoring the state of an optimizer and of a loss scaler: training that continues from
// it has the bits of training that was not interrupted.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "optim/loss_scaler.h"
#include "tests/optim/flat_values.h"

namespace zl {
namespace {

constexpr int64_t kElements = 37;

struct OptimizerCase {
  std::string called;
  OptimizerConfig config;
  Dtype type;
  std::vector<std::string> names;  // of the state
};

std::vector<OptimizerCase> optimizer_cases() {
  const OptimizerConfig adamw{.weight_decay = 0.1};
  OptimizerConfig with_master = adamw;
  with_master.separate_master = true;
  const OptimizerConfig momentum{.kind = OptimizerKind::sgd, .momentum = 0.9, .dampening = 0.25};
  return {{"AdamW", adamw, Dtype::f32, {"exp_avg", "exp_avg_sq"}},
          {"AdamW in f64", adamw, Dtype::f64, {"exp_avg", "exp_avg_sq"}},
          {"AdamW with a master copy",
           with_master,
           Dtype::f32,
           {"master_weights", "exp_avg", "exp_avg_sq"}},
          {"AdamW of bf16", adamw, Dtype::bf16, {"master_weights", "exp_avg", "exp_avg_sq"}},
          {"SGD with momentum", momentum, Dtype::f32, {"momentum_buffer"}},
          {"SGD", {.kind = OptimizerKind::sgd}, Dtype::f32, {}}};
}

// The values of everything that a checkpoint of an optimizer saves.
struct Saved {
  std::vector<double> parameters;
  std::map<std::string, std::vector<double>> state;
  int64_t steps;
};

struct Training {
  Workbench& bench;
  Dtype type;
  Tensor parameters;
  std::unique_ptr<FlatOptimizer> optimizer;

  Training(Workbench& bench, const OptimizerCase& c)
      : bench(bench),
        type(c.type),
        parameters(Tensor::empty(bench.memory, MemoryUse::parameter, {kElements}, type)),
        optimizer(std::make_unique<FlatOptimizer>(bench.memory, kElements, type, c.config)) {
    kernel::normal({.seed = 3}, 0, parameters);
    if (optimizer->master().defined()) kernel::copy(parameters, optimizer->master());
  }
  void run(int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s)
      optimizer->update(parameters, bench.tensor({kElements}, gradient_values(kElements, s), type),
                        0.01, 1);
  }
  Saved save() const {
    Saved saved{values(parameters), {}, optimizer->steps()};
    for (const OptimizerState& s : optimizer->state()) saved.state[s.name] = values(s.tensor);
    return saved;
  }
  // Restores everything but the part that is `left_out`.
  void restore(const Saved& saved, const std::string& left_out) {
    assign(parameters, saved.parameters);
    for (const OptimizerState& s : optimizer->state())
      if (s.name != left_out) assign(s.tensor, saved.state.at(s.name));
    if (left_out != "steps") optimizer->set_steps(saved.steps);
  }
};

bool operator==(const Saved& a, const Saved& b) {
  return a.parameters == b.parameters && a.state == b.state && a.steps == b.steps;
}

}  // namespace

TEST_CASE("an optimizer with a restored state continues with the same bits", "[optim]") {
  Workbench bench;
  for (const OptimizerCase& c : optimizer_cases()) {
    CAPTURE(c.called);
    Training uninterrupted(bench, c), first_half(bench, c);
    uninterrupted.run(0, 10);
    first_half.run(0, 5);
    const Saved saved = first_half.save();
    std::vector<std::string> names;
    for (const OptimizerState& s : first_half.optimizer->state()) names.push_back(s.name);
    CHECK(names == c.names);

    Training restored(bench, c);
    restored.restore(saved, "");
    restored.run(5, 10);
    CHECK(restored.save() == uninterrupted.save());

    if (names.empty()) continue;  // plain SGD: only the parameters matter
    names.push_back("steps");
    for (const std::string& left_out : names) {
      CAPTURE(left_out);
      Training incomplete(bench, c);
      incomplete.restore(saved, left_out);
      incomplete.run(5, 10);
      CHECK_FALSE(incomplete.save().parameters == uninterrupted.save().parameters);
    }
  }
}

TEST_CASE("a loss scaler with a restored state continues with the same scales", "[optim]") {
  const std::string outcomes = "..x.xx....x......xxx....x.x..........x..x...";  // x: an overflow
  const LossScaleConfig config{.window = 4, .hysteresis = 3};
  const auto scales = [&](LossScaler& scaler, size_t begin, size_t end) {
    std::vector<double> all;
    for (size_t i = begin; i < end; ++i) {
      scaler.update(outcomes[i] == 'x');
      all.push_back(scaler.scale());
    }
    return all;
  };
  int differ[4] = {};
  for (size_t cut = 0; cut <= outcomes.size(); ++cut) {
    LossScaler uninterrupted(config), restored(config);
    scales(uninterrupted, 0, cut);
    const LossScaler::State saved = uninterrupted.state();
    const std::vector<double> expected = scales(uninterrupted, cut, outcomes.size());
    restored.restore(saved);
    CHECK(scales(restored, cut, outcomes.size()) == expected);

    for (int field = 0; field < 4; ++field) {
      LossScaler incomplete(config);
      LossScaler::State state = saved;
      const LossScaler::State fresh = incomplete.state();
      if (field == 0) state.scale = fresh.scale;
      if (field == 1) state.steps = fresh.steps;
      if (field == 2) state.last_overflow = fresh.last_overflow;
      if (field == 3) state.overflows_left = fresh.overflows_left;
      incomplete.restore(state);
      differ[field] += scales(incomplete, cut, outcomes.size()) != expected;
    }
  }
  for (const int cuts : differ) CHECK(cuts > 5);  // every field matters
}

}  // namespace zl
