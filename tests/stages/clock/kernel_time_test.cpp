// How long a kernel takes on a machine, and shares of peaks that are carried over from one kind of
// GPU to another.

#include "stages/predict/clock/kernel_time.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "stages/predict/clock/machine.h"

using namespace zl;
using Catch::Approx;

TEST_CASE("a kernel takes the longer of its operations and its bytes", "[stages][clock]") {
  RankMachine rank{.memory_bandwidth = 10, .f32_flops = 100, .half_flops = 1000};
  rank.matmul = {{500, 0.1}, {1000, 0.2}};
  const auto seconds = [&](const char* kernel, double operations, double bytes, Dtype type) {
    return kernel_seconds(rank, {kernel, operations, bytes, type});
  };
  CHECK(seconds("matmul", 2000, 1, Dtype::f32) == 100);  // 2000 / (100 * 0.2)
  CHECK(seconds("matmul", 250, 1, Dtype::f32) == 25);    // at a tenth of the peak
  CHECK(seconds("matmul", 2000, 1, Dtype::bf16) == 10);
  CHECK(seconds("matmul", 2000, 2000, Dtype::f32) == 200);  // its bytes
  CHECK(seconds("gelu", 1e9, 50, Dtype::f32) == 5);         // limited by memory
  rank.kernels = {{"gelu", Dtype::f32, 1, {{0, 50, 3}, {0, 500, 30}}}};
  CHECK(seconds("gelu", 0, 50, Dtype::f32) == 3);
  CHECK(seconds("gelu", 0, 5000, Dtype::f32) == 300);  // as fast as the largest that was measured
  CHECK(seconds("gelu", 0, 5, Dtype::f32) == 3);       // no faster than the smallest
  CHECK(seconds("gelu", 0, 50, Dtype::bf16) == 5);     // not measured in this type
}

TEST_CASE("between two sizes the logarithm of the share is linear in that of the size",
          "[stages][clock]") {
  const std::vector<Efficiency> rows = {{100, 0.1}, {10000, 0.4}};
  CHECK(share_of(rows, 1) == 0.1);
  CHECK(share_of(rows, 100) == 0.1);
  CHECK(share_of(rows, 1000) == Approx(0.2));  // the geometric mean
  CHECK(share_of(rows, 10000) == Approx(0.4));
  CHECK(share_of(rows, 1e9) == 0.4);
  CHECK(share_of({}, 5) == 1);
  CHECK(time_grows(rows));
  CHECK(time_grows({{1, 0.1}, {2, 0.2}}));          // the same time
  CHECK_FALSE(time_grows({{1, 0.1}, {2, 0.201}}));  // less
}

TEST_CASE("a larger kernel never takes less time", "[stages][clock]") {
  const auto grows = [](const RankMachine& rank) {
    for (const char* kernel : {"matmul", "attention", "gelu", "adamw"})
      for (const double per_byte : {100, 100'000})  // operations: limited by bytes, and by them
        for (double size = 1e4, last = 0; size < 1e14; size *= 1.05) {
          const double now = kernel_seconds(rank, {kernel, size, size / per_byte, Dtype::bf16});
          if (now < last * (1 - 1e-12)) return false;
          last = now;
        }
    return true;
  };
  for (const Machine& m : shipped_machines()) {
    CAPTURE(m.name);
    CHECK(grows(m.rank));
  }
  RankMachine jumps = find_machine("l4").rank;
  jumps.matmul = {{1e9, 0.1}, {1.001e9, 0.6}};
  CHECK_FALSE(grows(jumps));
}

TEST_CASE("kernels that stream have shares of the memory's bandwidth of their own",
          "[stages][clock]") {
  RankMachine rank{.memory_bandwidth = 100, .f32_flops = 1, .half_flops = 1};
  rank.memory = {{1, 0.2}};
  const auto seconds = [&](const char* kernel) {
    return kernel_seconds(rank, {kernel, 0, 100, Dtype::f32});
  };
  CHECK(seconds("adamw") == Approx(5));  // no row: as the others
  rank.streaming = {{1, 0.8}};
  for (const char* kernel : {"adamw", "sgd", "fill", "copy", "accumulate", "sums_of_squares"})
    CHECK(seconds(kernel) == Approx(1.25));
  for (const char* kernel : {"gelu", "add", "layer_norm", "cross_entropy"})
    CHECK(seconds(kernel) == Approx(5));
  // AdamW of 1 GB on the A100: 0.87 of 2,039 GB/s.
  CHECK(kernel_seconds(find_machine("a100-80gb").rank, {"adamw", 0, 1e9, Dtype::bf16}) ==
        Approx(1e9 / (0.87 * 2039e9)));
}

TEST_CASE("between two sizes the time per operation is interpolated, and so it is between shapes",
          "[stages][clock]") {
  RankMachine rank{.memory_bandwidth = 1, .f32_flops = 1, .half_flops = 1};
  rank.kernels = {{"matmul", Dtype::f32, 1, {{100, 1, 100}, {10000, 1, 1000}}, 512},
                  {"matmul", Dtype::f32, 1, {{100, 1, 50}}, 2048},
                  {"matmul", Dtype::f32, 4, {{100, 1, 300}}, 512},
                  {"attention", Dtype::f32, 1, {{80, 10, 80}, {1280, 40, 320}}, 16},
                  {"attention", Dtype::f32, 1, {{80, 10, 20}}, 64}};
  const auto seconds = [&](const char* kernel, double operations, double bytes, int head,
                           int ranks = 1) {
    return kernel_seconds(rank, {kernel, operations, bytes, Dtype::f32, ranks, head, 512});
  };
  // 1 s per operation at 100, 1/10 s at 10,000: the geometric mean at 1,000.
  CHECK(seconds("matmul", 1000, 1, 32) == Approx(1000 / std::sqrt(10)));
  CHECK(seconds("matmul", 200, 1, 32, 3) == Approx(600));  // 4 ranks are nearer than 1
  // 1,024 rows are in the middle of 512 and 2,048.
  CHECK(kernel_seconds(rank, {"matmul", 100, 1, Dtype::f32, 1, 32, 1024}) ==
        Approx(100 / std::sqrt(2)));
  // Twice the batch takes twice the time; the operations per byte say which point is meant.
  CHECK(seconds("attention", 160, 20, 16) == Approx(160));
  CHECK(seconds("attention", 2560, 80, 16) == Approx(640));
  CHECK(seconds("attention", 8, 1, 16) == Approx(8));
  // Heads of 32 are in the middle of 16 and 64: between 1 and 1/4 s per operation.
  CHECK(seconds("attention", 80, 10, 32) == Approx(40));
  CHECK(seconds("attention", 80, 10, 8) == Approx(80));
  CHECK(seconds("attention", 80, 10, 128) == Approx(20));
}
