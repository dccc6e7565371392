// With several micro-batches the pairs of stages add in another order. How far that can take them
// apart has a bound.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "tensor/kernels.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// The gradient of all parameters after the last backward pass of the one step, in order, unpadded;
// each rank gives its shard.
std::vector<float> reduced_gradient(StageRunSpec spec) {
  OddModel shapes(spec.model);
  int64_t total = 0;
  for (const Unit& u : shapes.units()) total += u.numel();
  std::vector<float> all(size_t(total), 0);
  std::vector<int> backwards(size_t(spec.ranks), 0);
  spec.after_backward = [&](Stage& stage, OddModel& model, Communicator& comm, Memory&) {
    if (++backwards[size_t(comm.rank())] != spec.micro_batches) return;
    int64_t unit_begin = 0;
    for (const Unit& u : model.units()) {
      const UnitState& m = stage.state(u);
      const std::vector<float> gradient = kernel::download_floats(kept_gradient(m));
      const int64_t shard = m.partition.shard(), begin = comm.rank() * shard,
                    at = kept_gradient(m).numel() == shard ? 0 : begin;
      for (const Partition::Piece& piece : m.partition.pieces(begin, shard)) {
        int64_t before = unit_begin;  // parameters of the unit that stand before this one
        for (const Parameter* p : u.parameters) {
          if (p == piece.parameter) break;
          before += p->numel();
        }
        for (int64_t i = 0; i < piece.count; ++i)
          all[size_t(before + piece.first + i)] = gradient[size_t(at + piece.at + i)];
      }
      unit_begin += u.numel();
    }
  };
  run_stage(spec);
  return all;
}

struct Exact {
  std::vector<double> mean_sum,
      magnitude;  // the sum over micro-batches of the mean over ranks, and that of |g|
};

// From the gradients of each micro-batch alone, added in double.
Exact exact_gradient(StageRunSpec spec) {
  const int N = spec.ranks, all = spec.ranks * spec.micro_batches;
  Exact exact;
  for (int j = 0; j < all; ++j) {
    StageRunSpec alone = spec;
    alone.stage = StageKind::ddp;
    alone.ranks = alone.micro_batches = alone.steps = 1;
    alone.first_micro_batch = j;
    const std::vector<float> g = reduced_gradient(alone);
    exact.mean_sum.resize(g.size());
    exact.magnitude.resize(g.size());
    for (size_t i = 0; i < g.size(); ++i) {
      exact.mean_sum[i] += double(g[i]) / N;
      exact.magnitude[i] += std::abs(double(g[i])) / N;
    }
  }
  return exact;
}

}  // namespace

TEST_CASE(
    "the reduced gradients of ddp and zero2 differ by no more than 2 A N 2^-24 sum |g|, element by "
    "element",
    "[stages]") {
  const int ranks = GENERATE(2, 3);
  const int micro_batches = GENERATE(3, 4);
  StageRunSpec spec{
      .ranks = ranks, .micro_batches = micro_batches, .steps = 1, .model = {.block_twice = true}};
  const Exact exact = exact_gradient(spec);
  spec.stage = StageKind::ddp;
  const std::vector<float> ddp = reduced_gradient(spec);
  spec.stage = StageKind::zero2;
  const std::vector<float> zero2 = reduced_gradient(spec);
  const double terms = double(micro_batches * ranks) * 0x1p-24;
  int64_t differ = 0;
  for (size_t i = 0; i < ddp.size(); ++i) {
    CAPTURE(i, ranks, micro_batches, ddp[i], zero2[i], exact.mean_sum[i]);
    const double bound = terms * exact.magnitude[i];
    REQUIRE(std::abs(double(ddp[i]) - double(zero2[i])) <= 2 * bound);
    REQUIRE(std::abs(double(ddp[i]) - exact.mean_sum[i]) <=
            bound);  // each alone is within half of it
    REQUIRE(std::abs(double(zero2[i]) - exact.mean_sum[i]) <= bound);
    differ += ddp[i] != zero2[i];
  }
  CHECK(differ > 0);  // the twin: the bound is not met by being equal
  spec.data_seed = 8;
  const std::vector<float> other = reduced_gradient(spec);
  int64_t beyond = 0;
  for (size_t i = 0; i < ddp.size(); ++i)
    beyond += std::abs(double(other[i]) - exact.mean_sum[i]) > terms * exact.magnitude[i];
  CHECK(beyond > int64_t(ddp.size()) / 2);
}
