// The closed formulas of moves, counted on paper: units of 4, 2, 3 and 1 times U, and GPT-2.
// tests/stages/offload_test.cpp holds runs in every precision, type and schedule against them.
#include <catch2/catch_test_macros.hpp>

#include "nn/gpt.h"
#include "stages/predict/closed_form.h"

using namespace zl;

namespace {

constexpr int N = 3;
constexpr int64_t U = 1024 * N, kShard = U / N;
using Total = MoveLog::Total;

PredictionInput of(StageKind stage, Dtype dtype = Dtype::bf16) {
  return {.options = {.stage = stage, .precision = dtype, .offload_optimizer = OffloadDevice::cpu},
          .ranks = N,
          .units = {4 * U, 2 * U, 3 * U, 1 * U}};
}

Total up(const PredictionInput& in) { return predict(in).moves.of(Move::host_to_device); }
Total down(const PredictionInput& in) { return predict(in).moves.of(Move::device_to_host); }

}  // namespace

TEST_CASE("an offloaded optimizer takes gradients from the device, and gives parameters back",
          "[stages][moves]") {
  // zero1: once per step, however many micro-batches.
  PredictionInput in = of(StageKind::zero1);
  in.options.accumulation = 3;
  CHECK(down(in) == Total{4, 2 * 10 * kShard});  // gradients in bf16
  CHECK(up(in) == Total{4, 2 * 10 * kShard});
  // zero2 and zero3: gradients once per micro-batch.
  for (const StageKind stage : {StageKind::zero2, StageKind::zero3}) {
    in.options.stage = stage;
    CHECK(down(in) == Total{3 * 4, 3 * 2 * 10 * kShard});
    CHECK(up(in) == Total{4, 2 * 10 * kShard});
    CHECK(predict(in).update_moves.of(Move::device_to_host) == Total{});  // not of the update
    CHECK(predict(in).update_moves.of(Move::host_to_device) == up(in));
  }
  // Without master weights the optimizer reads the parameters, too.
  CHECK(down(of(StageKind::zero1, Dtype::f32)) == Total{8, (4 + 4) * 10 * kShard});
  CHECK(down(of(StageKind::zero2, Dtype::f32)) == Total{8, (4 + 4) * 10 * kShard});
  // ddp offloads nothing.
  CHECK(predict(of(StageKind::ddp)).moves == MoveLog{});
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
  CHECK(up(in).bytes == 104'747'136);
  // e Ψ/4 of gradients, and nothing of parameters.
  int64_t all = 0;
  for (const int64_t n : in.units) all += n;
  CHECK(down(in).bytes == 2 * all / 4);
  in.options.accumulation = 3;
  CHECK(up(in).bytes == 3 * 104'747'136);
  CHECK(predict(in).device.rest_of(MemoryUse::parameter) == 0);
  CHECK(predict(in).host.rest_of(MemoryUse::parameter) == 2 * all / 4);
  in.options.stage = StageKind::zero2;  // which computes with full parameters
  in.options.offload_optimizer = OffloadDevice::none;
  CHECK(predict(in).moves == MoveLog{});
}
