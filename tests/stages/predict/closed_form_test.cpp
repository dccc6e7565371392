// The closed formulas where no run of the odd model goes: units without parameters, and GPT-2.

#include "stages/predict/closed_form.h"

#include <catch2/catch_test_macros.hpp>

#include "nn/formats/named_gpt.h"

using namespace zl;

TEST_CASE("units without parameters change no peak and are gathered all the same", "[stages]") {
  constexpr int64_t U = 16 * 3;
  PredictionInput in{.options = {.stage = StageKind::zero3,
                                 .overlap = {.overlap_comm = true,
                                             .prefetch_bucket_size = 1,
                                             .max_reuse_distance = 1}},
                     .ranks = 3,
                     .units = {4 * U, 2 * U, 0, 3 * U, 0}};
  // [U] of fp32 that a use takes at its peak, above what is kept between steps.
  const auto above_rest = [&](MemoryUse use) {
    const Prediction p = predict(in);
    return (p.device.peak_of(use) - p.device.rest_of(use)) / 4 / U;
  };
  const auto calls = [&](Collective collective, Purpose purpose) {
    return predict(in).traffic.rows().at({collective, purpose}).calls;
  };
  // Block 2 has nothing, so block 3 is prefetched with it while block 1 runs.
  CHECK(above_rest(MemoryUse::parameter) == 4 + 2 + 3);
  CHECK(above_rest(MemoryUse::gradient) == 4 + 3 + 2);
  // Only empty block 4 runs after block 3, so block 3 stays too, and so do the blocks before
  // whose distance is 0: none.
  CHECK(calls(Collective::all_gather, Purpose::parameter) == 5 + 2);
  CHECK(calls(Collective::reduce_scatter, Purpose::gradient) == 3);
  in.options.overlap = {};
  CHECK(above_rest(MemoryUse::parameter) == 4 + 3);
  CHECK(calls(Collective::all_gather, Purpose::parameter) == 5 + 4);
  in.units = {4 * U};  // root alone
  CHECK(above_rest(MemoryUse::parameter) == 4);
  CHECK(above_rest(MemoryUse::gradient) == 4);
}

TEST_CASE("units are padded to 1,024 elements per rank in reproducible mode, else to 16",
          "[stages]") {
  Gpt model(named_gpt("tiny"));
  for (const int ranks : {1, 2, 3, 5}) {
    const auto ours = padded_unit_sizes(model.units(), ranks),
               reproducible = padded_unit_sizes(model.units(), ranks, {.reproducible = true});
    REQUIRE(ours.size() == reproducible.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      CAPTURE(ranks, i);
      CHECK(reproducible[i] % (1024 * ranks) == 0);
      CHECK(reproducible[i] >= model.units()[i].numel());
      CHECK(reproducible[i] - 1024 * ranks < ours[i]);
      CHECK(ours[i] <= reproducible[i]);
    }
  }
  // tiny with 2 ranks: 9,280 and 12,704 elements (the table of models) become 10,240 and 14,336.
  CHECK(padded_unit_sizes(model.units(), 2, {.reproducible = true}) ==
        std::vector<int64_t>{10'240, 14'336, 14'336});
}

TEST_CASE("GPT-2 on 4 ranks in bf16 copies 104,747,136 B per rank and micro-batch",
          "[stages][moves]") {
  Gpt gpt(named_gpt("gpt2"));
  PredictionInput in{.options = {.stage = StageKind::zero3,
                                 .precision = Dtype::bf16,
                                 .offload_optimizer = OffloadDevice::cpu,
                                 .offload_param = OffloadDevice::cpu},
                     .ranks = 4,
                     .units = padded_unit_sizes(gpt.units(), 4)};
  const auto bytes = [&](Move move) { return predict(in).moves.of(move).bytes; };
  CHECK(bytes(Move::host_to_device) == 104'747'136);
  // e Ψ/4 of gradients, and nothing of parameters.
  int64_t all = 0;
  for (const int64_t n : in.units) all += n;
  CHECK(bytes(Move::device_to_host) == 2 * all / 4);
  in.options.accumulation = 3;
  CHECK(bytes(Move::host_to_device) == 3 * 104'747'136);
  CHECK(predict(in).device.rest_of(MemoryUse::parameter) == 0);
  CHECK(predict(in).host.rest_of(MemoryUse::parameter) == 2 * all / 4);
  in.options.stage = StageKind::zero2;  // which computes with full parameters
  in.options.offload_optimizer = OffloadDevice::none;
  CHECK(predict(in).moves == MoveLog{});
}
