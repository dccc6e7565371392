// A run that is stopped and continued has the bits of one that never stopped.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <mutex>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/save.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kSteps = 12;

// Notes each row that is read.
class NotedRows final : public BatchSource {
 public:
  Shape input_row() const override { return checkpoint_text().input_row(); }
  Shape target_row() const override { return checkpoint_text().target_row(); }
  void fill_rows(int64_t first, std::span<int32_t> ids, std::span<int32_t> targets) const override {
    checkpoint_text().fill_rows(first, ids, targets);
    const std::lock_guard lock(mutex_);
    for (int64_t b = 0; b < int64_t(ids.size()) / numel(input_row()); ++b)
      rows_.push_back(first + b);
  }
  std::vector<int64_t> sorted() const {
    std::vector<int64_t> rows = rows_;
    std::ranges::sort(rows);
    return rows;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<int64_t> rows_;
};

// The run of `spec`, which stops after every step and is continued from `folder`.
Bits train_in_parts(GptTrainingSpec spec, const std::string& folder) {
  spec.checkpoint.folder = spec.checkpoint.resume = folder;
  Bits parts;
  for (spec.steps = 1; spec.steps <= kSteps; ++spec.steps) {
    const Bits part = train_bits(spec);
    REQUIRE(part.losses.size() == 1);
    parts.losses.push_back(part.losses[0]);
    parts.norms.push_back(part.norms[0]);
    parts.skipped.push_back(part.skipped[0]);
    parts.weights = part.weights;
  }
  return parts;
}

}  // namespace

TEST_CASE("a run that stops after every step, and resumes, ends with the same bits",
          "[stages][seeds]") {
  struct Case {
    StageKind stage;
    Dtype precision;
    CheckpointWrites writes;
    bool offload;
  };
  const auto [stage, precision, writes, offload] =
      GENERATE(Case{StageKind::zero1, Dtype::f32, CheckpointWrites::wait, true},
               Case{StageKind::ddp, Dtype::f32, CheckpointWrites::still, false},
               Case{StageKind::zero2, Dtype::bf16, CheckpointWrites::still, false},
               Case{StageKind::zero3, Dtype::bf16, CheckpointWrites::snapshot, true},
               Case{StageKind::zero1, Dtype::f16, CheckpointWrites::snapshot, false},
               Case{StageKind::ddp, Dtype::f16, CheckpointWrites::wait, false},
               Case{StageKind::zero2, Dtype::f16, CheckpointWrites::still, true},
               Case{StageKind::zero3, Dtype::f16, CheckpointWrites::wait, true});
  CAPTURE(name(stage), name(precision), offload, name(writes));
  const ScratchFolder scratch;
  GptTrainingSpec spec = checkpoint_spec(scratch.path("whole"), stage, 3);
  spec.engine.precision = precision;
  spec.engine.accumulation = 2;
  spec.engine.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
  spec.engine.offload_param = spec.engine.offload_optimizer;
  spec.checkpoint.writes = writes;
  spec.steps = kSteps;
  const Bits whole = train_bits(spec);
  const DataFiles expected = data_files(checkpoint_path(scratch.path("whole"), kSteps));

  CHECK(train_in_parts(spec, scratch.path("parts")) == whole);
  CHECK(data_files(checkpoint_path(scratch.path("parts"), kSteps)) == expected);
  // The twin: half of the steps are another state.
  CHECK(data_files(checkpoint_path(scratch.path("parts"), kSteps / 2)) != expected);
  const auto overflows = [&](int64_t from, int64_t to) {
    return std::count(whole.skipped.begin() + from, whole.skipped.begin() + to, true) > 0;
  };
  CHECK(overflows(0, kSteps / 2) == (precision == Dtype::f16));
  CHECK(overflows(kSteps / 2, kSteps) == (precision == Dtype::f16));
}

TEST_CASE("a run that stops within the hysteresis of its loss scale resumes with the same bits",
          "[stages]") {
  const ScratchFolder scratch;
  GptTrainingSpec spec = checkpoint_spec("", StageKind::zero2, 3);
  spec.engine.precision = Dtype::f16;
  spec.engine.accumulation = 2;
  spec.engine.loss_scale.hysteresis = 3;
  spec.steps = kSteps;
  const Bits whole = train_bits(spec);
  REQUIRE(std::count(whole.skipped.begin(), whole.skipped.begin() + 3, true) == 3);
  CHECK(train_in_parts(spec, scratch.path("parts")) == whole);
  spec.engine.loss_scale.hysteresis = 1;  // the twin
  CHECK(train_bits(spec) != whole);
}

TEST_CASE("a run that resumes with another stage and number of ranks has the bits of ddp there",
          "[stages]") {
  const ScratchFolder scratch;
  run_training(checkpoint_spec(scratch.path("from"), StageKind::zero3, 4));
  std::map<StageKind, Bits> bits;
  for (const StageKind stage : kStages) {
    GptTrainingSpec spec = checkpoint_spec(scratch.path(name(stage)), stage, 3);
    spec.steps = 6;
    spec.checkpoint.resume = scratch.path("from");
    bits[stage] = train_bits(spec);
  }
  REQUIRE(bits[StageKind::ddp].losses.size() == 3);
  for (const StageKind stage : kStages) CHECK(bits[stage] == bits[StageKind::ddp]);
  GptTrainingSpec anew = checkpoint_spec(scratch.path("anew"), StageKind::ddp, 3);
  CHECK(train_bits(anew).losses != bits[StageKind::ddp].losses);
}

TEST_CASE("every window is read once when ranks and batches change at each resume", "[stages]") {
  const ScratchFolder scratch;
  NotedRows rows;
  struct Sizes {
    int ranks;
    int64_t accumulation, micro_batch;
  };
  int64_t steps = 0;
  // 24 rows are no whole number of micro-batches of 5.
  for (const Sizes sizes : {Sizes{2, 2, 1}, Sizes{4, 1, 1}, Sizes{1, 2, 2}, Sizes{1, 1, 5}}) {
    GptTrainingSpec spec = checkpoint_spec(scratch.path("run"), StageKind::zero2, sizes.ranks);
    spec.checkpoint.resume = scratch.path("run");
    spec.engine.accumulation = sizes.accumulation;
    spec.micro_batch = sizes.micro_batch;
    spec.data = &rows;
    spec.steps = steps += 2;
    run_training(spec);
  }
  std::vector<int64_t> expected(24 + 10);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = int64_t(i);
  CHECK(rows.sorted() == expected);
}

TEST_CASE("only the newest checkpoints stay, in the order of their numbers", "[stages]") {
  const ScratchFolder scratch;
  GptTrainingSpec spec = checkpoint_spec(scratch.path("run"), StageKind::zero1, 2);
  spec.checkpoint.keep = 2;
  spec.steps = 5;
  run_training(spec);
  std::vector<int64_t> steps;
  for (const CheckpointPath& c : list_checkpoints(scratch.path("run"))) steps.push_back(c.step);
  CHECK(steps == std::vector<int64_t>{4, 5});
  CHECK(read_file(scratch.path("run") + "/latest") == "step-00000005\n");
  // As text, 100000000 comes before 99999999.
  for (const int64_t step : {99999999, 100000000, 100000001})
    std::filesystem::create_directories(checkpoint_path(scratch.path("numbers"), step));
  CheckpointOptions options{.folder = scratch.path("numbers"), .keep = 2};
  remove_old_checkpoints(options, 100000001);
  steps.clear();
  for (const CheckpointPath& c : list_checkpoints(options.folder)) steps.push_back(c.step);
  CHECK(steps == std::vector<int64_t>{100000000, 100000001});
}

TEST_CASE("the checkpoint just written is never removed, also beside later ones", "[stages]") {
  const ScratchFolder scratch;
  for (const int64_t step : {100, 200, 300})
    std::filesystem::create_directories(checkpoint_path(scratch.path("run"), step));
  CheckpointOptions options{.folder = scratch.path("run"), .keep = 1};
  remove_old_checkpoints(options, 100);
  const auto left = list_checkpoints(scratch.path("run"));
  REQUIRE(left.size() == 1);
  CHECK(left[0].step == 100);
}

TEST_CASE("a run does not save beside complete checkpoints of later steps", "[stages]") {
  const ScratchFolder scratch;
  GptTrainingSpec spec = checkpoint_spec(scratch.path("run"), StageKind::zero1, 2);
  run_training(spec);
  spec.checkpoint.resume = checkpoint_path(scratch.path("run"), 1);
  CHECK_THROWS_AS(run_training(spec), InputError);
  // A broken later one is put aside.
  for (const int64_t step : {2, 3})
    std::filesystem::remove(checkpoint_path(scratch.path("run"), step) + "/checkpoint.json");
  CHECK_NOTHROW(run_training(spec));
  CHECK(std::filesystem::exists(checkpoint_path(scratch.path("run"), 3) + ".broken"));
  CHECK(list_checkpoints(scratch.path("run")).size() == 3);
}

TEST_CASE("a state is neither saved nor restored inside a step", "[stages]") {
  const ScratchFolder scratch;
  GptTrainingSpec spec = checkpoint_spec("", StageKind::zero1, 1);
  spec.engine.accumulation = 2;
  spec.steps = 1;
  int refused = 0;
  run_training(spec, {.after_backward = [&](Trainer& trainer) {
                 CheckpointOptions options{.folder = scratch.path("run")};
                 const auto count = [&](const auto& action) {
                   refused += !sentence_of<std::invalid_argument>(action).empty();
                 };
                 count([&] {
                   CheckpointSave({trainer.engine(), trainer.model(), trainer.host(), {}}, options,
                                  trainer.position());
                 });
                 count([&] { (void)trainer.engine().state(); });
                 count([&] { trainer.engine().restore({}); });
               }});
  CHECK(refused == 2 * 3);
}
