// The closed formulas on units whose peaks can be counted on paper: root 4, blocks 2, 3 and 1.

#include "stages/predict/closed_form.h"

#include <catch2/catch_test_macros.hpp>

#include "nn/gpt.h"

using namespace zl;

namespace {

constexpr int N = 3;
constexpr int64_t U = 1024 * N;  // [n] fits 16 * N and the reproducible 1,024 * N
const std::vector<int64_t> kUnits = {4 * U, 2 * U, 3 * U, 1 * U};
constexpr int64_t W = 10 * U;

PredictionInput of(StageKind stage, const Overlap& overlap = {}, int64_t bucket = 1) {
  return {.options = {.stage = stage, .reduce_bucket_size = bucket, .overlap = overlap},
          .ranks = N,
          .units = kUnits};
}

// [U] of fp32 that a use takes at its peak, above what is kept between steps.
int64_t above_rest(const PredictionInput& in, MemoryUse use, int64_t element = 4) {
  const Prediction p = predict(in);
  return (p.device.peak_of(use) - p.device.rest_of(use)) / element / U;
}

Traffic traffic(const PredictionInput& in, Collective collective, Purpose purpose) {
  const auto rows = predict(in).traffic.rows();
  const auto found = rows.find({collective, purpose});
  return found == rows.end() ? Traffic{} : found->second;
}

Traffic gathers(const PredictionInput& in) {
  return traffic(in, Collective::all_gather, Purpose::parameter);
}

}  // namespace

TEST_CASE("a bucket in flight in another type is memory of communication, with overlap and without",
          "[stages]") {
  for (const StageKind stage : kStages)
    for (const bool overlap : {false, true}) {
      CAPTURE(name(stage), overlap);
      PredictionInput in = of(stage, {.overlap_comm = overlap});
      in.options.precision = Dtype::bf16;
      const bool frees = shards_gradient(stage);
      CHECK(above_rest(in, MemoryUse::communication, 4) == 0);
      CHECK(above_rest(in, MemoryUse::gradient, 2) == (!frees ? 0 : overlap ? 4 + 3 + 2 : 4 + 3));
      // Micro-batches accumulate in fp32. ddp and zero1 add each unit as soon as it is complete.
      in.options.grad_accum_dtype = Dtype::f32;
      CHECK(above_rest(in, MemoryUse::communication, 4) == (frees ? 4 : 0));
      CHECK(above_rest(in, MemoryUse::gradient, 2) == 4 + 3);
      in.options.grad_accum_dtype = std::nullopt;
      in.options.communication_data_type = Dtype::f32;
      CHECK(above_rest(in, MemoryUse::communication, 4) == 4);
      CHECK(above_rest(in, MemoryUse::gradient, 2) == (frees ? 4 + 3 : 0));
      in.options.reduce_bucket_size = 4 * U;  // blocks 3 and 2, then block 1 with root
      CHECK(above_rest(in, MemoryUse::communication, 4) == 2 + 4);
    }
}

TEST_CASE("scratch of ordered sums is that of one bucket, because one is in flight", "[stages]") {
  for (const bool overlap : {false, true}) {
    PredictionInput in = of(StageKind::zero2, {.overlap_comm = overlap});
    in.scratch = true;
    const auto communication = [&] { return predict(in).device.peak_of(MemoryUse::communication); };
    CHECK(communication() == 4 * U / N * (N - 1) * 4);  // root
    in.options.reduce_bucket_size = 4 * U;
    CHECK(communication() == 6 * U / N * (N - 1) * 4);
    in.options.precision = Dtype::bf16, in.options.communication_data_type = Dtype::f32;
    CHECK(communication() == (6 * U + 6 * U / N * (N - 1)) * 4);
  }
}

TEST_CASE("units without parameters change no peak and are gathered all the same", "[stages]") {
  PredictionInput in = of(
      StageKind::zero3, {.overlap_comm = true, .prefetch_bucket_size = 1, .max_reuse_distance = 1});
  in.units = {4 * U, 2 * U, 0, 3 * U, 0};
  // Block 2 has nothing, so block 3 is prefetched with it while block 1 runs.
  CHECK(above_rest(in, MemoryUse::parameter) == 4 + 2 + 3);
  CHECK(above_rest(in, MemoryUse::gradient) == 4 + 3 + 2);
  // Only empty block 4 runs after block 3, so block 3 stays too, and so do the blocks before
  // whose distance is 0: none.
  CHECK(gathers(in).calls == 5 + 2);
  CHECK(traffic(in, Collective::reduce_scatter, Purpose::gradient).calls == 3);
  in.options.overlap = {};
  CHECK(above_rest(in, MemoryUse::parameter) == 4 + 3);
  CHECK(gathers(in).calls == 5 + 4);
  in.units = {4 * U};  // root alone
  CHECK(above_rest(in, MemoryUse::parameter) == 4);
  CHECK(above_rest(in, MemoryUse::gradient) == 4);
}

TEST_CASE("reproducible sums keep fp32 gradients and reduce in every micro-batch", "[stages]") {
  for (const StageKind stage : kStages)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const bool overlap : {false, true}) {
        CAPTURE(name(stage), name(dtype), overlap);
        PredictionInput in = of(stage, {.overlap_comm = overlap});
        in.options.precision = dtype;
        in.options.reproducible = true;
        in.options.accumulation = 5;
        const bool shards = shards_gradient(stage), converts = dtype != Dtype::f32;
        const Prediction p = predict(in);
        CHECK(p.device.rest_of(MemoryUse::gradient) == W / (shards ? N : 1) * 4);
        CHECK(above_rest(in, MemoryUse::gradient, size_of(dtype)) ==
              (overlap && !converts ? 4 + 3 + 2 : 4 + 3));
        // Root's fp32 copy; else the norm's doubles, one per 1,024 elements.
        CHECK(p.device.peak_of(MemoryUse::communication) == (converts ? 4 * U * 4 : W / 1024 * 8));
        const Collective reduction =
            stage == StageKind::ddp ? Collective::all_reduce : Collective::reduce_scatter;
        const Traffic reduced = traffic(in, reduction, Purpose::gradient);
        CHECK((reduced.calls == 5 * 4 && reduced.elements == 5 * W));
        CHECK(reduced.sent_bytes_times_n ==
              5 * W * 4 * (N - 1) * (stage == StageKind::ddp ? 2 : 1));
        const auto doubles = [&](Purpose purpose) {
          return traffic(in, Collective::all_gather, purpose);
        };
        CHECK(doubles(Purpose::norm) == Traffic{1, W / 1024, W / 1024 * 8 * (N - 1), int(N)});
        CHECK(doubles(Purpose::loss) == Traffic{1, 5 * N, 5 * N * 8 * (N - 1), int(N)});
        CHECK(doubles(Purpose::check) == Traffic{1, N, N * 8 * (N - 1), int(N)});
        in.options.reproducible = false;
        CHECK(traffic(in, reduction, Purpose::gradient).calls == (shards ? 5 * 4 : 4));
        CHECK(doubles(Purpose::norm) == Traffic{1, N, N * 8 * (N - 1), int(N)});
      }
}

TEST_CASE("reproducible sums continue offloaded gradient shards on the device", "[stages]") {
  for (const StageKind stage : {StageKind::zero1, StageKind::zero2, StageKind::zero3}) {
    CAPTURE(name(stage));
    PredictionInput in = of(stage);
    in.options.reproducible = true;
    in.options.offload_optimizer = OffloadDevice::cpu;
    const auto communication = [&] { return predict(in).device.peak_of(MemoryUse::communication); };
    // The largest bucket is root. zero1 accumulates in full gradients, which stay on the device.
    CHECK(communication() == (stage == StageKind::zero1 ? W / 1024 * 8 : 4 * U / N * 4));
    in.options.precision = Dtype::bf16;
    CHECK(communication() == (stage == StageKind::zero1 ? 4 * U * 4 : (4 * U + 4 * U / N) * 4));
    CHECK(predict(in).host.rest_of(MemoryUse::gradient) ==
          (stage == StageKind::zero1 ? 0 : W / N * 4));
    in.options.reproducible = false;
    CHECK(communication() == N * 8);
  }
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
