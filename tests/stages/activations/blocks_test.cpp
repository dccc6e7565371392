// The inputs of a GPT's blocks: the closed formulas on real runs, and several blocks per
// checkpoint.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "stages/predict/dry_run.h"
#include "stages/predict/prediction_rows.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

struct Seen {
  Bits bits;
  TrainingResult result;
};

Seen train(GptTrainingSpec spec) {
  const Windows text = text_in_windows(spec.window);
  spec.data = &text;
  Seen seen;
  seen.bits = train_bits(spec, {}, &seen.result);
  return seen;
}

GptTrainingSpec odd_blocks(Recompute recompute, int64_t checkpoints) {
  const GptConfig model{.layers = 5, .heads = 3, .width = 15, .block_size = 7, .vocab = 131};
  GptTrainingSpec spec = gpt_spec(model, 0, recompute, checkpoints);
  spec.micro_batch = 2;
  spec.steps = 2;
  spec.ranks = 2;
  spec.poison = true;
  spec.engine.accumulation = 2;
  spec.engine.gradient_clipping = 0.5;
  spec.engine.replicated_micro_batches = true;
  return spec;
}

// "": memory, traffic and moves of every rank are as `plan` and `compare` predict them.
std::string off_the_prediction(const GptTrainingSpec& spec, const Seen& seen) {
  const StepCount steps = count(seen.result.steps);
  std::string wrong;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const RankReport dry = dry_run(spec, rank), &real = seen.result.ranks[size_t(rank)];
    const Prediction p = predict(spec, dry, formulas_apply(spec));
    for (const MemoryRow& row : memory_rows(rank, real, p, dry))
      if (!row.exact())
        wrong += str(name(row.pool), " ", name(row.use), " ", row.peak, " B, not ",
                     row.predicted_peak, "; ");
    for (const TrafficRow& row : traffic_rows(spec.engine.stage, real.log, p, steps))
      if (!row.exact())
        wrong += str(name(row.collective), " ", name(row.purpose), " ", row.calls, " calls, not ",
                     row.predicted_calls, "; ");
    for (const MoveRow& row : move_rows(rank, real.moves, p, steps))
      if (!row.exact())
        wrong += str(name(row.move), " ", row.bytes, " B, not ", row.predicted_bytes, "; ");
    if (real.rest.peak_total() != dry.rest.peak_total()) wrong += "peak; ";
  }
  return wrong;
}

}  // namespace

TEST_CASE("blocks that are computed again together have the same bits, and predicted bytes",
          "[stages]") {
  const auto stage = GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const int64_t checkpoints = GENERATE(1, 2, 5);
  const int way = GENERATE(0, 1, 2);  // stay, on the host, partitioned with overlap
  const Dtype type = way == 0 ? Dtype::f32 : Dtype::bf16;
  CAPTURE(name(stage), name(type), checkpoints, way);
  GptTrainingSpec all = odd_blocks(Recompute::none, 0),
                  spec = odd_blocks(Recompute::full, checkpoints);
  for (GptTrainingSpec* s : {&all, &spec}) {
    s->engine.stage = stage;
    s->engine.precision = type;
    if (way == 2)
      s->engine.overlap = {
          .overlap_comm = true, .prefetch_bucket_size = 4000, .max_reuse_distance = 9000};
  }
  spec.engine.cpu_checkpointing = way == 1;
  spec.engine.partition_activations = way == 2;
  const Seen kept = train(all), again = train(spec);
  CHECK(again.bits == kept.bits);
  CHECK(off_the_prediction(spec, again) == "");
  if (way == 2) {  // an input has 2 x 7 x 15 = 210 elements, of which each of 2 ranks keeps 105
    const auto& row =
        again.result.ranks[0].log.rows().at({Collective::all_gather, Purpose::activation});
    CHECK(row.calls == 2 * 2 * checkpoints);
    CHECK(row.elements == row.calls * 210);
    CHECK(row.sent_bytes() == row.calls * 105 * size_of(type));
  }
  if (way == 1)
    CHECK(again.result.ranks[0].host.peak(MemoryUse::activation) ==
          checkpoints * 210 * size_of(type));
  all.engine.seed += 1;
  CHECK_FALSE(train(all).bits == kept.bits);
}

// small with B 4 and T 128 in fp32: an input has B*T*C = 65,536 elements. By hand; round2 5d.
TEST_CASE("the inputs of small take the bytes of the closed formulas", "[stages]") {
  const int64_t input = 4 * 128 * 128 * 4;  // [B]
  KeptInputs inputs{.elements = std::vector<int64_t>(4, 65'536), .ranks = 4};
  CHECK(kept_bytes(inputs) == 1'048'576);
  CHECK(returned_bytes(inputs) == 0);
  inputs.on_host = true;
  MoveLog moves;
  add_input_moves(moves, inputs);
  CHECK(moves.of(Move::device_to_host) == MoveLog::Total{4, 1'048'576});
  CHECK(moves.of(Move::host_to_device) == MoveLog::Total{4, 1'048'576});
  CHECK(returned_bytes(inputs) == input);
  inputs.on_host = false;
  inputs.partitioned = true;
  CHECK(kept_bytes(inputs) == 262'144);
  CHECK(returned_bytes(inputs) == input);
  CommunicationLog log;
  add_input_gathers(log, inputs);
  CHECK(log.rows().at({Collective::all_gather, Purpose::activation}).sent_bytes() == 196'608 * 4);

  // In a dry run, the peak is in backward of the last block, when all inputs wait. That block's
  // input is on the device in all ways; where it was brought back, what waits is there beside it.
  const auto peak = [&](bool on_host, bool partitioned) {
    GptTrainingSpec spec = gpt_spec(named_gpt("small"), 0, Recompute::full);
    spec.ranks = 4;
    spec.engine.replicated_micro_batches = true;
    spec.engine.cpu_checkpointing = on_host;
    spec.engine.partition_activations = partitioned;
    const RankReport dry = dry_run(spec, 0);
    return std::array{dry.rest.peak(MemoryUse::activation), dry.host.peak(MemoryUse::activation)};
  };
  const auto stay = peak(false, false), host = peak(true, false), parts = peak(false, true),
             both = peak(true, true);
  CHECK(stay[0] - host[0] == 4 * input - input);
  CHECK(stay[0] - parts[0] == 4 * input - (262'144 + input));
  CHECK(stay[0] - both[0] == 4 * input - input);
  CHECK((stay[1] == 0 && host[1] == 1'048'576 && parts[1] == 0 && both[1] == 262'144));
}

TEST_CASE("there are no more checkpoints than blocks", "[stages]") {
  const GptConfig model{.layers = 3, .heads = 1, .width = 4, .block_size = 4, .vocab = 5};
  CHECK_NOTHROW(Gpt(model, Recompute::full, 3));
  CHECK_THROWS_WITH(Gpt(model, Recompute::full, 4),
                    Catch::Matchers::ContainsSubstring(
                        "number_checkpoints is 4, but a model of 3 blocks has at most 3"));
}
