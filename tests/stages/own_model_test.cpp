// Models that cannot be trained or saved are refused before the first step, in one sentence that
// names unit and parameter: by a stage, by a run, by compare and by plan.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <deque>
#include <limits>

#include "autograd/ops.h"
#include "nn/data/windows.h"
#include "stages/train/comparison.h"
#include "tests/nn/scratch_folder.h"

namespace zl {
namespace {

// Root with "head", and the block "h.0" with "weight"; both project.
struct TwoUnits final : Model {
  std::deque<Parameter> parameters{
      {"embed", {4, 3}, 0, 1}, {"head", {4, 3}, 0, 1}, {"weight", {3, 3}, 0, 1}};
  std::vector<Unit> list{{"root", {&parameters[0], &parameters[1]}, 0},
                         {"h.0", {&parameters[2]}, 1}};
  std::string title = "two units";
  bool logits = false, nothing = false;

  std::string name() const override { return title; }
  std::vector<Unit>& units() override { return list; }
  Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override {
    if (nothing) return {};
    const auto p = [&](size_t i) { return Var::parameter(tape, parameters[i]); };
    return run_unit(tape, observer, list[0], [&] {
      Var x = embedding(batch.inputs, p(0));
      x = run_unit(tape, observer, list[1], [&] { return project(x, p(2)); });
      const Var y = project(x, p(1));
      return logits ? y : cross_entropy(y, batch.targets);
    });
  }
};

using Change = std::function<void(TwoUnits&)>;

const Windows& four_tokens() {
  static const Windows windows(TokenData::of_text("tokens", std::string("\0\1\2\3\0\2\1\3\1", 9)),
                               2);
  return windows;
}

TrainingSpec spec_of(const Change& change) {
  TrainingSpec spec;
  spec.make_model = [change] {
    auto model = std::make_unique<TwoUnits>();
    change(*model);
    return model;
  };
  spec.data = &four_tokens();
  spec.micro_batch = 2;
  spec.steps = 2;
  spec.ranks = 2;
  return spec;
}

// What `action` says of the model; "" if it takes it.
std::string refusal(const std::function<void()>& action) {
  return sentence_of<std::exception>(action);
}

// The same sentence by every way into a run.
std::string refusal_of(const Change& change) {
  const TrainingSpec spec = spec_of(change);
  const std::string run = refusal([&] { run_training(spec); });
  CHECK(refusal([&] { compare_stages(spec, {kStages, kStages + 4}); }) == run);
  CHECK(refusal([&] { plan_stage(spec, StageKind::zero2, 0); }) == run);
  if (run.find("two units '") == std::string::npos)
    for (const StageKind stage : kStages)
      CHECK(refusal([&] {
              run_ranks(1, [&](Communicator& comm) {
                Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
                TwoUnits model;
                change(model);
                Options options;
                options.stage = stage;
                initialize(model.units(), comm, memory, options);
              });
            }) == run);
  return run;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("names that files cannot keep apart are refused before training, by unit and parameter",
          "[stages][own_models]") {
  CHECK(refusal_of([](TwoUnits&) {}).empty());  // the twin
  const auto renamed = [](const std::string& name) {
    return refusal_of([&](TwoUnits& m) { m.parameters[2].name = name; });
  };
  CHECK(has(renamed("head"),
            "unit h.0: parameter 'head' (0 of its list) has the name of another "
            "one in unit root"));
  for (const char* name : {"", "__metadata__", "\xff", "\xc0\x80", "\xed\xa0\x80", "w\xe2\x82"})
    CHECK(has(renamed(name), "(0 of its list) has a name that no file of weights can have"));
  for (const char* name : {"größe", "\xf0\x9f\x98\x80", "Weight", "weight "})
    CHECK(renamed(name).empty());
  const auto unit_named = [](const std::string& name) {
    return refusal_of([&](TwoUnits& m) { m.list[1].name = name; });
  };
  CHECK(has(unit_named("root"), "two units have the name root: give unit 1"));
  CHECK(has(unit_named(""), "unit 1 of the model's list is named ''"));
  CHECK(has(unit_named("h\xfe"), "unit 1 of the model's list is named 'h"));
  const std::string model =
      refusal([] { run_training(spec_of([](TwoUnits& m) { m.title = "two \xff units"; })); });
  CHECK(has(model, "a name or metadata that are not UTF-8"));
}

TEST_CASE("parameters that are missing, shared, empty or begin with no finite values are refused",
          "[stages][own_models]") {
  CHECK(has(refusal_of([](TwoUnits& m) { m.list[1].parameters[0] = nullptr; }),
            "unit h.0: parameter 0 of its list is a null pointer"));
  CHECK(has(refusal_of([](TwoUnits& m) { m.list[1].parameters.push_back(&m.parameters[0]); }),
            "unit h.0: parameter 'embed' (1 of its list) is in unit root already"));
  CHECK(has(refusal_of([](TwoUnits& m) { m.list[0].parameters.push_back(&m.parameters[1]); }),
            "unit root: parameter 'head' (2 of its list) is in unit root already"));
  for (const Shape& shape : {Shape{-1}, {3, -1}, {-2, -2}, {3, 0, 3}, {1 << 30, 1 << 30}})
    CHECK(has(refusal_of([&](TwoUnits& m) { m.parameters[2].shape = shape; }),
              "unit h.0: parameter 'weight' (0 of its list) has shape " + to_string(shape)));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {std::nan(""), infinity, -infinity, 1e39, -0.5}) {
    CHECK(has(refusal_of([&](TwoUnits& m) { m.parameters[2].initial_deviation = value; }),
              "unit h.0: parameter 'weight' (0 of its list) has initial values of deviation"));
    const std::string of_mean =
        refusal_of([&](TwoUnits& m) { m.parameters[2].initial_mean = value; });
    CHECK(of_mean.empty() == (value == -0.5));
  }
  CHECK(has(refusal_of([](TwoUnits& m) { m.list.clear(); }), "at least one unit"));
  CHECK(has(refusal_of([](TwoUnits& m) { m.list[1].index = 0; }), "its index is 0"));
}

TEST_CASE("a run without a model, and a result that is no loss, are refused in plain words",
          "[stages][own_models]") {
  TrainingSpec spec = spec_of([](TwoUnits&) {});
  spec.make_model = {};
  CHECK(refusal([&] { run_training(spec); }) ==
        "a run needs a model: set TrainingSpec::make_model");
  CHECK(has(refusal([&] { compare_stages(spec, {StageKind::zero1}); }), "make_model"));
  CHECK(has(refusal([&] { plan_stage(spec, StageKind::zero1, 0); }), "make_model"));
  spec.make_model = [] { return nullptr; };
  CHECK(has(refusal([&] { run_training(spec); }), "returned a null pointer"));

  const auto of_run = [](const Change& change) {
    return refusal([&] { run_training(spec_of(change)); });
  };
  CHECK(has(of_run([](TwoUnits& m) { m.logits = true; }),
            "forward: the function returned f32 values of shape (2, 2, 4), not a loss"));
  CHECK(has(of_run([](TwoUnits& m) { m.nothing = true; }), "returned no loss"));
  CHECK(has(of_run([](TwoUnits& m) {
              for (Parameter& p : m.parameters) p.requires_grad = false;
            }),
            "there is nothing to train: the loss depends on no parameter, or only on frozen ones"));
  CHECK(of_run([](TwoUnits& m) { m.parameters[0].requires_grad = false; }).empty());  // the twin
}

TEST_CASE("the rows of a run are those of its data, and a plan without data takes the spec's",
          "[stages][own_models]") {
  const TrainingSpec with_data = spec_of([](TwoUnits&) {});
  TrainingSpec without = with_data;
  without.data = nullptr;
  without.input_row = without.target_row = {2};
  const auto peak = [](const TrainingSpec& spec) {
    return plan_stage(spec, StageKind::zero1, 0).peak_total;
  };
  CHECK(peak(with_data) == peak(without));
  without.input_row = without.target_row = {3};
  CHECK(peak(with_data) != peak(without));  // the twin
  const TrainingResult run = run_training(with_data);
  CHECK(run.ranks[0].rest.peak_total() > 0);
  CHECK(run.steps[0].tokens == 2 * 2 * 2);  // N ranks, B rows of 2 tokens
}

}  // namespace zl
