// The presets beside the systems themselves: bytes and calls that were measured in DeepSpeed
// 0.19.8 and PyTorch 2.15 for a GPT of 10,844,160 parameters in fp32 on two ranks.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "stages/predict/dry_run.h"
#include "stages/predict/prediction_rows.h"
#include "stages/train/gpt_spec.h"
#include "stages/variants/buckets.h"
#include "stages/variants/shipped.h"

using namespace zl;

namespace {

constexpr int64_t kParameters = 10'844'160;

GptTrainingSpec model_m(StageKind stage, int64_t micro_batches = 1) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 6, .heads = 6, .width = 384, .block_size = 256, .vocab = 256});
  spec.micro_batch = 4;
  spec.ranks = 2;
  spec.engine.stage = stage;
  spec.engine.accumulation = micro_batches;
  return spec;
}

// Of gradients and parameters: what the stage makes on the meta backend, not what is predicted.
using Rows = CommunicationLog::Rows;
Rows logged(const GptTrainingSpec& spec) {
  Rows rows;
  const RankReport report = dry_run(spec, 0);
  for (const auto& [key, traffic] : report.log.rows())
    if (key.purpose == Purpose::gradient || key.purpose == Purpose::parameter) rows[key] = traffic;
  return rows;
}

// [B] sent per rank, step and parameter, in thousandths.
int64_t sent(const GptTrainingSpec& spec) {
  int64_t bytes_times_n = 0;
  for (const auto& [key, traffic] : logged(spec)) bytes_times_n += traffic.sent_bytes_times_n;
  return std::llround(1000.0 * double(bytes_times_n) / spec.ranks / kParameters);
}

const TrafficKey kReduced{Collective::all_reduce, Purpose::gradient};
const TrafficKey kScattered{Collective::reduce_scatter, Purpose::gradient};
const TrafficKey kGathered{Collective::all_gather, Purpose::parameter};

}  // namespace

TEST_CASE("the model of the measurements has 10,844,160 parameters", "[stages]") {
  CHECK(model_m(StageKind::ddp).model.parameters() == kParameters);
}

TEST_CASE("presets send what was measured, in thousandths of a byte per parameter", "[stages]") {
  struct Row {
    StageKind stage;
    int64_t micro_batches, expected;
  };
  const Row rows[] = {
      {StageKind::deepspeed_1, 1, 6000}, {StageKind::deepspeed_1, 2, 6000},
      {StageKind::deepspeed_2, 1, 6000}, {StageKind::deepspeed_2, 2, 10000},
      {StageKind::deepspeed_3, 1, 4000}, {StageKind::fsdp2, 1, 5964},
      {StageKind::fsdp2, 2, 11927},      {StageKind::fsdp2_no_reshard, 1, 4000},
      {StageKind::torch_ddp, 1, 4000},   {StageKind::torch_ddp, 2, 4000},
      {StageKind::deepspeed_3, 2, 7958},  // 8 in the table, whose persistent parameters are rounded
  };
  for (const Row& row : rows) {
    CAPTURE(name(row.stage), row.micro_batches);
    CHECK(sent(model_m(row.stage, row.micro_batches)) == row.expected);
  }
  CHECK(sent(model_m(StageKind::zero1)) == 4000);  // the paper's: a preset is another stage
}

TEST_CASE("deepspeed-1 and -2 make one all-reduce and one all-gather of everything", "[stages]") {
  for (const StageKind stage : {StageKind::deepspeed_1, StageKind::deepspeed_2}) {
    CAPTURE(name(stage));
    GptTrainingSpec spec = model_m(stage);
    const Rows rows = logged(spec);
    REQUIRE(rows.size() == 2);
    CHECK(rows.at(kReduced).calls == 1);
    CHECK(rows.at(kReduced).elements * 4 == 43'376'640);
    CHECK(rows.at(kGathered).calls == 1);
    CHECK(rows.at(kGathered).elements * 4 == 43'376'640);
    spec.engine.reduce_bucket_size = 1'800'000;
    const Rows smaller = logged(spec);
    CHECK(smaller.at(kReduced).calls == 7);
    CHECK(smaller.at(kReduced).elements == kParameters);
    CHECK(smaller.at(kGathered).calls == 1);
  }
}

TEST_CASE("deepspeed-3 gathers the large parameters at once and 52 small ones one by one",
          "[stages]") {
  const Rows rows = logged(model_m(StageKind::deepspeed_3));
  REQUIRE(rows.size() == 2);
  CHECK(rows.at(kGathered).calls == 1 + 52);
  CHECK(rows.at(kScattered).calls == 1);
  CHECK(rows.at(kScattered).elements == kParameters);
  Gpt model(model_m(StageKind::ddp).model);
  const Grouping grouping = group_persistent_apart(model.units(), 100'000, 50'000'000);
  REQUIRE(grouping.units.size() == 1 + 52);
  CHECK(grouping.units[0].numel() * 4 == 42'467'328);
  int64_t least = kParameters, most = 0;
  for (size_t i = 1; i < grouping.units.size(); ++i) {
    least = std::min(least, grouping.units[i].numel());
    most = std::max(most, grouping.units[i].numel());
  }
  CHECK(least * 4 == 1'536);
  CHECK(most * 4 == 393'216);
}

TEST_CASE("deepspeed-3 with the paper's keys is zero3 with buckets", "[stages]") {
  GptTrainingSpec spec = model_m(StageKind::deepspeed_3);
  spec.engine.persistence_threshold = 0;
  spec.engine.given.prefetch_bucket_size = spec.engine.given.max_reuse_distance = true;
  spec.engine.reduce_bucket_size = 1'800'000;
  const Rows rows = logged(spec);
  CHECK(rows.at(kGathered).calls == 13);
  CHECK(rows.at(kScattered).calls == 7);
  CHECK(sent(spec) == 5964);
}

TEST_CASE("fsdp2 makes 13 all-gathers and 7 reduce-scatters, without reshard 7 and 7", "[stages]") {
  const Rows rows = logged(model_m(StageKind::fsdp2));
  CHECK(rows.at(kGathered).calls == 13);
  CHECK(rows.at(kScattered).calls == 7);
  const Rows kept = logged(model_m(StageKind::fsdp2_no_reshard));
  CHECK(kept.at(kGathered).calls == 7);
  CHECK(kept.at(kScattered).calls == 7);
}

TEST_CASE("torch-ddp reduces buckets of 2.4, 28.4 and 12.6 MB", "[stages]") {
  const Rows rows = logged(model_m(StageKind::torch_ddp));
  REQUIRE(rows.size() == 1);
  CHECK(rows.at(kReduced).calls == 3);
  Gpt model(model_m(StageKind::ddp).model);
  const Partition all(group_all(model.units()).units[0], 2);
  const std::vector<Cut> cuts = torch_cuts(all, 4);
  REQUIRE(cuts.size() == 3);
  const int64_t tenths_of_mb[] = {24, 284, 126};
  for (size_t i = 0; i < 3; ++i)
    CHECK(std::llround(double(cuts[i].count * 4) / 1e5) == tenths_of_mb[i]);
  CHECK(torch_cuts(all, 2).size() == 2);  // half the bytes: not the same buckets
}

// [B] per parameter, in hundredths.
TEST_CASE("presets keep what was measured between steps and in the bucket", "[stages]") {
  const auto rest = [](StageKind stage, MemoryUse use) {
    const RankReport report = dry_run(model_m(stage), 0);
    return std::llround(100.0 * double(report.rest.live(use)) / kParameters);
  };
  const auto at_rest = [&](StageKind stage) {
    return rest(stage, MemoryUse::parameter) + rest(stage, MemoryUse::master_weights) +
           rest(stage, MemoryUse::gradient) + rest(stage, MemoryUse::optimizer_state);
  };
  CHECK(at_rest(StageKind::deepspeed_1) == 1000);
  CHECK(at_rest(StageKind::deepspeed_2) == 1000);
  CHECK(at_rest(StageKind::fsdp2) == 600);
  CHECK(at_rest(StageKind::fsdp2_no_reshard) == 600);
  CHECK(at_rest(StageKind::torch_ddp) + rest(StageKind::torch_ddp, MemoryUse::communication) ==
        1600);
  CHECK(at_rest(StageKind::deepspeed_3) == 1004);  // measured: 10.08, with shards of small ones
  CHECK(rest(StageKind::deepspeed_3, MemoryUse::communication) == 18443);
  CHECK(rest(StageKind::deepspeed_1, MemoryUse::communication) == 0);
  CHECK(at_rest(StageKind::zero1) == 1200);  // keeps gradients, no copy
  const RankReport report = dry_run(model_m(StageKind::deepspeed_1), 0);
  CHECK(std::llround(100.0 * double(report.rest.peak(MemoryUse::communication)) / kParameters) ==
        18443);
}
