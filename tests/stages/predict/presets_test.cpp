// The presets beside the systems themselves: bytes and calls that were measured in DeepSpeed
// 0.19.8 and PyTorch 2.15 for a GPT of 10,844,160 parameters in fp32 on two ranks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>

#include "stages/predict/preset_forms.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

namespace {

constexpr int64_t kParameters = 10'844'160;

GptTrainingSpec model_m(int64_t micro_batches = 1) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 6, .heads = 6, .width = 384, .block_size = 256, .vocab = 256});
  spec.micro_batch = 4;
  spec.ranks = 2;
  spec.engine.accumulation = micro_batches;
  return spec;
}

PresetPlan plan(const char* preset, const TrainingSpec& spec = model_m(),
                std::optional<int64_t> threshold = {}) {
  return predict(*find_preset(preset), spec, threshold);
}

const TrafficRow& row(const PresetPlan& plan, Purpose purpose) {
  const auto found = std::ranges::find(plan.traffic, purpose, &TrafficRow::purpose);
  REQUIRE(found != plan.traffic.end());
  return *found;
}

// [B] sent per rank, step and parameter, in thousandths.
int64_t sent(const PresetPlan& plan) {
  int64_t bytes = 0;
  for (const TrafficRow& row : plan.traffic) bytes += row.predicted_sent;
  return std::llround(1000.0 * double(bytes) / kParameters);
}

// [B] of a use at rest or at its peak.
int64_t bytes(const PresetPlan& plan, MemoryUse use,
              int64_t MemoryRow::*column = &MemoryRow::predicted_rest) {
  const auto found = std::ranges::find(plan.memory, use, &MemoryRow::use);
  return found == plan.memory.end() ? 0 : (*found).*column;
}

// [B] per parameter, in hundredths.
int64_t hundredths(int64_t bytes) { return std::llround(100.0 * double(bytes) / kParameters); }

int64_t at_rest(const PresetPlan& plan) {
  int64_t sum = 0;
  for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::master_weights, MemoryUse::gradient,
                              MemoryUse::optimizer_state})
    sum += bytes(plan, use);
  return hundredths(sum);
}

}  // namespace

TEST_CASE("presets send what was measured, in thousandths of a byte per parameter", "[stages]") {
  struct Row {
    const char* preset;
    int64_t micro_batches, expected;
  };
  const Row rows[] = {
      {"deepspeed-1", 1, 6000},      {"deepspeed-1", 2, 6000}, {"deepspeed-2", 1, 6000},
      {"deepspeed-2", 2, 10000},     {"deepspeed-3", 1, 4000}, {"fsdp2", 1, 5964},
      {"fsdp2", 2, 11927},           {"torch-ddp", 1, 4000},   {"torch-ddp", 2, 4000},
      {"fsdp2-no-reshard", 1, 4000}, {"deepspeed-3", 2, 7958},  // 8 in the table, whose persistent
                                                                // parameters are rounded
  };
  for (const Row& row : rows) {
    CAPTURE(row.preset, row.micro_batches);
    CHECK(sent(plan(row.preset, model_m(row.micro_batches))) == row.expected);
  }
}

TEST_CASE("deepspeed-1 and -2 make one all-reduce and one all-gather of everything", "[stages]") {
  for (const char* preset : {"deepspeed-1", "deepspeed-2"}) {
    CAPTURE(preset);
    GptTrainingSpec spec = model_m();
    const PresetPlan whole = plan(preset, spec);
    REQUIRE(whole.traffic.size() == 2);
    CHECK(row(whole, Purpose::gradient).collective == Collective::all_reduce);
    for (const Purpose purpose : {Purpose::gradient, Purpose::parameter}) {
      CHECK(row(whole, purpose).predicted_calls == 1);
      CHECK(row(whole, purpose).predicted_elements * 4 == 43'376'640);
    }
    spec.engine.reduce_bucket_size = 1'800'000;
    const PresetPlan smaller = plan(preset, spec);
    CHECK(row(smaller, Purpose::gradient).predicted_calls == 7);
    CHECK(row(smaller, Purpose::gradient).predicted_elements == kParameters);
    CHECK(row(smaller, Purpose::parameter).predicted_calls == 1);
  }
}

TEST_CASE("deepspeed-3 gathers the large parameters at once and 52 small ones one by one",
          "[stages]") {
  const PresetPlan three = plan("deepspeed-3");
  REQUIRE(three.traffic.size() == 2);
  CHECK(row(three, Purpose::parameter).predicted_calls == 1 + 52);
  CHECK(row(three, Purpose::gradient).collective == Collective::reduce_scatter);
  CHECK(row(three, Purpose::gradient).predicted_calls == 1);
  CHECK(row(three, Purpose::gradient).predicted_elements == kParameters);
  // A matrix of 384 x 256 has 98,304 elements: the largest that the threshold leaves in full.
  const auto kept = [&](int64_t threshold) {
    return bytes(plan("deepspeed-3", model_m(), threshold), MemoryUse::parameter);
  };
  CHECK(kept(98'303) < kept(98'304));
  CHECK(kept(98'304) == kept(100'000));
  CHECK(row(plan("deepspeed-3", model_m(), 98'303), Purpose::parameter).predicted_calls < 53);
}

TEST_CASE("deepspeed-3 without small parameters gathers and reduces by unit", "[stages]") {
  GptTrainingSpec spec = model_m();
  spec.engine.overlap.prefetch_bucket_size = spec.engine.overlap.max_reuse_distance = 1;
  spec.engine.reduce_bucket_size = 1'800'000;
  const PresetPlan three = plan("deepspeed-3", spec, 0);
  CHECK(row(three, Purpose::parameter).predicted_calls == 12);  // the last block stays
  CHECK(row(three, Purpose::gradient).predicted_calls == 7);
}

TEST_CASE("fsdp2 makes 13 all-gathers and 7 reduce-scatters, without reshard 7 and 7", "[stages]") {
  for (const auto& [preset, gathers] : {std::pair{"fsdp2", 13}, {"fsdp2-no-reshard", 7}}) {
    const PresetPlan two = plan(preset);
    CHECK(row(two, Purpose::parameter).predicted_calls == gathers);
    CHECK(row(two, Purpose::gradient).predicted_calls == 7);
    CHECK(two.buckets.size() == 7);
    CHECK(std::accumulate(two.buckets.begin(), two.buckets.end(), int64_t(0)) == kParameters);
  }
}

TEST_CASE("torch-ddp reduces buckets of 2.4, 28.4 and 12.6 MB", "[stages]") {
  const PresetPlan ddp = plan("torch-ddp");
  REQUIRE(ddp.traffic.size() == 1);
  CHECK(row(ddp, Purpose::gradient).predicted_calls == 3);
  REQUIRE(ddp.buckets.size() == 3);
  const int64_t tenths_of_mb[] = {24, 284, 126};
  for (size_t i = 0; i < 3; ++i)
    CHECK(std::llround(double(ddp.buckets[i] * 4) / 1e5) == tenths_of_mb[i]);
  GptTrainingSpec half = model_m();
  half.engine.precision = Dtype::bf16;
  CHECK(plan("torch-ddp", half).buckets.size() == 2);  // half the bytes: not the same buckets
}

TEST_CASE("presets keep what was measured between steps and in the bucket", "[stages]") {
  CHECK(at_rest(plan("deepspeed-1")) == 1000);
  CHECK(at_rest(plan("deepspeed-2")) == 1000);
  CHECK(at_rest(plan("fsdp2")) == 600);
  CHECK(at_rest(plan("fsdp2-no-reshard")) == 600);
  const PresetPlan ddp = plan("torch-ddp");
  CHECK(at_rest(ddp) + hundredths(bytes(ddp, MemoryUse::communication)) == 1600);
  const PresetPlan three = plan("deepspeed-3");
  CHECK(at_rest(three) == 1004);  // measured: 10.08, with shards of small ones
  CHECK(hundredths(bytes(three, MemoryUse::communication)) == 18443);
  const PresetPlan one = plan("deepspeed-1");
  CHECK(bytes(one, MemoryUse::communication) == 0);
  CHECK(hundredths(bytes(one, MemoryUse::communication, &MemoryRow::predicted_peak)) == 18443);
}

TEST_CASE("settings that no formula of a preset knows are refused", "[stages]") {
  for (const Preset& preset : presets()) {
    GptTrainingSpec spec = model_m();
    spec.engine.reproducible = true;
    CHECK_THROWS_AS(predict(preset, spec), InputError);
    spec = model_m();
    spec.engine.offload_optimizer = OffloadDevice::cpu;
    CHECK_THROWS_AS(predict(preset, spec), InputError);
  }
}
