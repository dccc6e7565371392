// The trials of bench comm: right results have no wrong value, and each wrong one is counted.
#include "dist/trace/collective_trial.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>

#include "tensor/kernels.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

// What every rank counts after `work` made its trial.
std::vector<int64_t> wrong(int ranks, const TrialSpec& spec,
                           const std::function<void(CollectiveTrial&, int rank)>& work) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks));
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        CollectiveTrial trial(spec, comm, rank.memory);
        trial.fill();
        work(trial, comm.rank());
        counts[size_t(comm.rank())] = trial.wrong();
      },
      within(std::chrono::seconds(20)));
  return counts;
}

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

void spoil(CollectiveTrial& trial, int64_t element) {
  kernel::fill(kernel::download_floats(trial.result().slice(element, {1}))[0] + 1,
               trial.result().slice(element, {1}));
}

}  // namespace

TEST_CASE("a trial counts no value wrong that is right, and each one that is not", "[dist]") {
  const Collective kind =
      GENERATE(Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
               Collective::broadcast, Collective::all_to_all, Collective::send);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  const int ranks = GENERATE(1, 2, 3);
  if (kind == Collective::send && ranks == 1) return;
  CAPTURE(name(kind), name(dtype), ranks);
  const TrialSpec spec{kind, 60, dtype};
  CHECK(total(wrong(ranks, spec, [](CollectiveTrial& t, int) { t.call(); })) == 0);
  const auto spoilt = wrong(ranks, spec, [&](CollectiveTrial& t, int rank) {
    t.call();
    for (int64_t i = 0; i <= rank; ++i)
      spoil(t, rank * (60 / ranks) + i);  // in its own slice, which is the result of each kind
  });
  for (int r = 0; r < ranks; ++r) CHECK(spoilt[size_t(r)] == r + 1);
  if (ranks > 1)
    CHECK(total(wrong(ranks, spec, [](CollectiveTrial&, int) {})) > 0);  // nothing was called
}

TEST_CASE("sums of 64 ranks are exact in every type", "[dist]") {
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  CHECK(total(wrong(64, {Collective::all_reduce, 131, dtype},
                    [](CollectiveTrial& t, int) { t.call(); })) == 0);
}

TEST_CASE("a trial that was cleared stays zero however often it is timed, and takes some time",
          "[dist]") {
  std::vector<double> values(2);
  std::vector<int64_t> times(2);
  run_ranks(
      2,
      [&](Communicator& comm) {
        Rank rank(comm);
        CollectiveTrial trial({Collective::all_reduce, 7, Dtype::f16}, comm, rank.memory);
        trial.fill();
        trial.clear();
        for (int i = 0; i < 30; ++i) times[size_t(comm.rank())] += trial.time();
        values[size_t(comm.rank())] = kernel::download_floats(trial.result())[3];
      },
      within(std::chrono::seconds(20)));
  CHECK(values == std::vector<double>{0, 0});
  for (const int64_t time : times) CHECK(time > 0);
}

TEST_CASE("a trial of nothing, or of a rank that sends to itself, is refused", "[dist]") {
  EventStream events;
  Memory memory({}, cpu_backend(), events);
  run_ranks(1, [&](Communicator& comm) {
    CHECK_THROWS_AS(CollectiveTrial({Collective::all_reduce, 0, Dtype::f32}, comm, memory),
                    std::invalid_argument);
    CHECK_THROWS_AS(CollectiveTrial({Collective::all_reduce, 4, Dtype::i32}, comm, memory),
                    std::invalid_argument);
    CHECK_THROWS_AS(CollectiveTrial({Collective::barrier, 4, Dtype::f32}, comm, memory),
                    std::invalid_argument);
    CHECK_THROWS_AS(CollectiveTrial({Collective::send, 4, Dtype::f32}, comm, memory),
                    std::invalid_argument);
  });
}
