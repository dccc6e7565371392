// What overlap, prefetch and reuse cost: for the models that zerolab knows by
// name, computed by hand from the sizes of their tensors; and as `plan` says it.

#include <catch2/catch_test_macros.hpp>

#include "nn/formats/named_gpt.h"
#include "stages/predict/closed_form.h"
#include "stages/predict/plan.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

namespace {

PredictionInput of(const char* model, int ranks, StageKind stage, const Overlap& overlap = {}) {
  Gpt gpt(named_gpt(model));
  return {.options = {.stage = stage, .overlap = overlap},
          .ranks = ranks,
          .units = padded_unit_sizes(gpt.units(), ranks)};
}

// [n] of fp32 beside what the rank keeps between steps.
int64_t above_rest(const PredictionInput& in, MemoryUse use) {
  const Prediction p = predict(in);
  return (p.device.peak_of(use) - p.device.rest_of(use)) / 4;
}

// [n] of gradients and parameters in one micro-batch.
int64_t sent(const PredictionInput& in) {
  const Prediction p = predict(in);
  int64_t bytes_times_n = 0;
  for (const auto& [key, t] : p.traffic.rows())
    if (key.purpose == Purpose::gradient || key.purpose == Purpose::parameter)
      bytes_times_n += t.sent_bytes_times_n;
  return bytes_times_n / in.ranks / 4;
}

// Keeps the last `blocks` blocks for the backward pass. All blocks have the same size.
Overlap reuse_of(const PredictionInput& in, int64_t blocks) {
  return {.max_reuse_distance = blocks == 0 ? 0 : 2 * (blocks - 1) * in.units[1] + 1};
}

struct Row {
  const char* model;
  int ranks;
  int64_t gradient, with_overlap;                // [n]
  std::vector<int64_t> blocks, sent, parameter;  // kept blocks; [n]; [n] above the shards
};

// clang-format off
const Row kRows[] = {
    {"tiny", 2, 21'984, 34'688,
     {0, 1, 2}, {47'392, 41'040, 34'688}, {21'984, 21'984, 34'688}},
    {"tiny", 3, 22'032, 34'752,
     {0, 1, 2}, {63'296, 54'816, 46'336}, {22'032, 22'032, 34'752}},
    {"small", 3, 247'728, 446'016,
     {0, 1, 2, 4}, {1'652'224, 1'520'032, 1'387'840, 1'123'456},
     {247'728, 247'728, 446'016, 842'592}},
    {"gpt2", 4, 46'473'216, 53'561'088,
     {0, 1, 2, 12}, {250'450'560, 245'134'656, 239'818'752, 186'659'712},
     {46'473'216, 46'473'216, 53'561'088, 124'439'808}},
};
// clang-format on

}  // namespace

// Overlap holds one more bucket of gradients, and a prefetch of one unit as many parameters. A
// block that stays for backward saves a gather, and one block costs nothing.
TEST_CASE("what overlap, prefetch and reuse cost: the table of models", "[stages]") {
  for (const Row& row : kRows) {
    CAPTURE(row.model, row.ranks);
    for (const StageKind stage : {StageKind::zero2, StageKind::zero3}) {
      const PredictionInput off = of(row.model, row.ranks, stage),
                            on = of(row.model, row.ranks, stage, {.overlap_comm = true});
      CHECK(above_rest(off, MemoryUse::gradient) == row.gradient);
      CHECK(above_rest(on, MemoryUse::gradient) == row.with_overlap);
      CHECK(sent(on) == sent(off));
      for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::communication})
        CHECK(above_rest(on, use) == above_rest(off, use));
    }
    const PredictionInput prefetched =
        of(row.model, row.ranks, StageKind::zero3, {.prefetch_bucket_size = 1});
    CHECK(above_rest(prefetched, MemoryUse::parameter) == row.with_overlap);
    CHECK(above_rest(prefetched, MemoryUse::gradient) == row.gradient);
    CHECK(sent(prefetched) == row.sent[0]);
    PredictionInput in = of(row.model, row.ranks, StageKind::zero3);
    for (size_t i = 0; i < row.blocks.size(); ++i) {
      CAPTURE(row.blocks[i]);
      in.options.overlap = reuse_of(in, row.blocks[i]);
      CHECK(sent(in) == row.sent[i]);
      CHECK(above_rest(in, MemoryUse::parameter) == row.parameter[i]);
    }
    // All that DeepSpeed's 1e9 keeps: stage 3 then sends as much as the others.
    in.options.overlap.max_reuse_distance = 1'000'000'000;
    CHECK(sent(in) == sent(of(row.model, row.ranks, StageKind::zero2)));
  }
}

namespace {

constexpr int64_t kBlock = 12'704;  // [n] of tiny on 2 ranks

GptTrainingSpec tiny() {
  GptTrainingSpec spec = gpt_spec(named_gpt("tiny"));
  spec.ranks = 2;
  return spec;
}

int64_t rest_of(const StagePlan& plan) {
  int64_t sum = 0;
  for (const MemoryRow& row : plan.memory) sum += row.predicted_rest;
  return sum;
}
int64_t peak_of(const StagePlan& plan, MemoryUse use) {
  int64_t sum = 0;
  for (const MemoryRow& row : plan.memory) sum += row.use == use ? row.predicted_peak : 0;
  return sum;
}
int64_t sent_by(const StagePlan& plan) {
  int64_t sum = 0;
  for (const TrafficRow& row : plan.traffic) sum += row.predicted_sent;
  return sum;
}

}  // namespace

TEST_CASE("plans with and without overlap, prefetch and reuse differ by what they cost",
          "[stages]") {
  const GptTrainingSpec without = tiny();
  GptTrainingSpec with = without;
  with.engine.overlap = {.overlap_comm = true, .prefetch_bucket_size = 1, .max_reuse_distance = 1};
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    const StagePlan on = plan_stage(with, stage, 1), off = plan_stage(without, stage, 1);
    const auto cost = [&](auto number) { return number(on) - number(off); };
    const auto peak = [&](MemoryUse use) {
      return cost([use](const StagePlan& p) { return peak_of(p, use); });
    };
    CHECK(cost([](const StagePlan& p) { return rest_of(p); }) == 0);
    CHECK(peak(MemoryUse::communication) == 0);
    CHECK(peak(MemoryUse::gradient) == (shards_gradient(stage) ? kBlock * 4 : 0));
    CHECK(peak(MemoryUse::parameter) == (stage == StageKind::zero3 ? kBlock * 4 : 0));
    // The last block is gathered once instead of twice; half of it comes from the other rank.
    CHECK(cost([](const StagePlan& p) { return sent_by(p); }) ==
          (stage == StageKind::zero3 ? -kBlock / 2 * 4 : 0));
    if (!shards_gradient(stage)) CHECK(on.peak_total == off.peak_total);
  }
}
