// The trials of bench comm through the fake.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "dist/trace/collective_trial.h"
#include "tensor/kernels.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;

TEST_CASE(
    "every collective of bench comm is right through NCCL, ordered or not, and what is spoilt is "
    "counted",
    "[nccl]") {
  const Collective kind =
      GENERATE(Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
               Collective::broadcast, Collective::all_to_all, Collective::send);
  const bool ordered = GENERATE(true, false), lagging = GENERATE(true, false);
  CAPTURE(name(kind), ordered, lagging);
  FakeNccl fake;
  const NcclApi api = fake.api();
  std::vector<int64_t> right(3), spoilt(3), times(3);
  run_nccl_ranks(3,
                 [&](Communicator& comm) {
                   Rank rank(comm, {}, fake_backends(lagging));
                   CollectiveTrial trial({kind, 66, Dtype::bf16}, comm, rank.memory);
                   trial.fill();
                   trial.call();
                   const auto r = size_t(comm.rank());
                   right[r] = trial.wrong();
                   const Tensor one = trial.result().slice(comm.rank() * 22, {1});
                   kernel::fill(kernel::download_floats(one)[0] + 1, one);
                   spoilt[r] = trial.wrong();
                   trial.clear();
                   for (int i = 0; i < 3; ++i) times[r] += trial.time();
                 },
                 within(std::chrono::seconds(20)), {.api = &api, .ordered = ordered});
  CHECK(right == std::vector<int64_t>{0, 0, 0});
  CHECK(spoilt == std::vector<int64_t>{1, 1, 1});
  for (const int64_t time : times) CHECK(time > 0);
  CHECK(fake.misuse() == "");
}
