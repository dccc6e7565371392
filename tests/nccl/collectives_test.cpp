// Every collective through the fake has the bits of ranks that are threads.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tensor/kernels.h"
#include "tests/dist/steps.h"
#include "tests/nccl/fake/fake_ranks.h"
#include "tests/pairwise.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;

namespace {

#define ZL_ALL_TYPES float, bf16, f16, double, int32_t

void all_gather(Communicator& comm, const Tensor& t) { comm.all_gather(t, kName).wait(); }

template <class T>
bool all_same_bits(const Buffers<T>& a, const Buffers<T>& b) {
  for (size_t r = 0; r < a.size(); ++r)
    if (!same_bits(a[r], b[r])) return false;
  return a.size() == b.size();
}

// Whether two sums or means differ by no more than rounding at each addition and at the division
// does.
template <class T>
bool near(const Buffers<T>& in, const std::vector<T>& a, const std::vector<T>& b) {
  const double unit = std::is_same_v<T, bf16> ? 0x1p-8 : std::is_same_v<T, f16> ? 0x1p-11 : 0x1p-24;
  for (size_t i = 0; i < a.size(); ++i) {
    double size = 0;
    for (const auto& buffer : in) size += std::abs(double(buffer[i]));
    if (!(std::abs(double(a[i]) - double(b[i])) <= size * unit * 2 + 0x1p-24)) return false;
  }
  return true;
}

}  // namespace

TEMPLATE_TEST_CASE("NCCL in order: every collective does what it does among threads", "[nccl]",
                   ZL_ALL_TYPES) {
  const int ranks = GENERATE(from_range(ranks_up_to(4)));
  const bool lagging = (ranks % 2 == 1) == (sizeof(TestType) == 4);
  std::vector<std::string> wrong(size_t(ranks), "not said");
  const auto ended = fake_outcome(ranks, {.lagging = lagging}, [&](Rank& rank) {
    wrong[size_t(rank.comm.rank())] = wrong_steps<TestType>(rank, 1009);
  });
  CHECK(wrong == std::vector<std::string>(size_t(ranks)));
  CHECK(ended.thrown + ended.misuse == "");
}

TEMPLATE_TEST_CASE("NCCL in order: sums that start with the sum before are one long sum in order",
                   "[nccl]", float, bf16, double) {
  SettingsRow pick = any_pair({4, 3, 2});
  const int ranks = pick.next({1, 2, 3, 4});
  const Place place = pick.next({Place::cpu, Place::lagging, Place::emulated});
  const Collective kind = pick.next({Collective::all_reduce, Collective::reduce_scatter});
  if (kThreadSanitizer && ranks != 3) return;
  if (place == Place::emulated) require_emulator();
  for (const int64_t odd : {1, 1009}) {
    CAPTURE(ranks, int(place), name(kind), odd);
    const auto in = inputs<TestType>(ranks, 3 * odd * (kind == Collective::all_reduce ? 1 : ranks));
    const auto run = [&](bool starts) {
      return after_nccl<TestType>(
          in, [&](Communicator& comm, const Tensor& t) { sum_thirds(comm, t, kind, starts); },
          {.lagging = place == Place::lagging, .emulated = place == Place::emulated});
    };
    CHECK(last_third_is(summed_thirds(in), run(true), kind));
    CHECK_FALSE(last_third_is(summed_thirds(in), run(false), kind));
  }
}

TEMPLATE_TEST_CASE("NCCL's own sums are right but for rounding, and without scratch", "[nccl]",
                   ZL_ALL_TYPES) {
  SettingsRow pick = any_pair({4, 2, 2});
  const int ranks = pick.next({1, 2, 3, 4});
  const bool lagging = pick.next({false, true}), scattered = pick.next({false, true});
  if (kThreadSanitizer && ranks != 3) return;
  const Reduction reduction = std::is_same_v<TestType, int32_t> ? Reduction::sum : Reduction::mean;
  CAPTURE(ranks, lagging, scattered);
  const auto in = inputs<TestType>(ranks, ranks * 67);
  const auto sum = [&](Communicator& comm, const Tensor& t) {
    if (scattered) {
      comm.reduce_scatter(t, reduction, kName).wait();
      comm.all_gather(t, kName).wait();
    } else {
      comm.all_reduce(t, reduction, kName).wait();
    }
    if (t.memory().ledger().peak(MemoryUse::communication) > 0) throw std::logic_error("scratch");
  };
  const auto own = after_nccl<TestType>(in, sum, {.lagging = lagging, .ordered = false});
  const auto ordered = reduced(in, reduction);
  for (const auto& buffer : own) CHECK(near(in, buffer, ordered));
  if (ranks > 1) CHECK_FALSE(near(in, in[0], ordered));
  CHECK(all_same_bits(own, Buffers<TestType>(size_t(ranks), own[0])));
  if (ranks == 3 && is_float(dtype_of<TestType>))
    CHECK_FALSE(same_bits(own[0], ordered));  // it does depend on the order
}

TEST_CASE(
    "NCCL in order: the scratch of a reduction is the other ranks' values of the own shard, for "
    "the length of the call",
    "[nccl]") {
  std::vector<int64_t> peaks(3), left(3);
  const auto ended = fake_outcome(3, {}, [&](Rank& rank) {
    const Tensor t = rank.filled(3 * 100, 1);
    const MemoryLedger& ledger = rank.memory.ledger();
    rank.comm.reduce_scatter(t, Reduction::mean, kName).wait();
    rank.comm.all_reduce(t, Reduction::mean, kName).wait();
    peaks[size_t(rank.comm.rank())] = ledger.peak(MemoryUse::communication);
    left[size_t(rank.comm.rank())] = ledger.live(MemoryUse::communication);
  });
  CHECK(ended.thrown == "");
  CHECK(peaks == std::vector<int64_t>(3, 2 * 100 * 4));
  CHECK(left == std::vector<int64_t>(3, 0));
}

TEST_CASE("where NCCL adds, a sum that begins with another is refused on all ranks", "[nccl]") {
  const bool scattered = GENERATE(false, true);
  const auto in = inputs<float>(2, 2 * 8);
  const auto sum = [scattered](bool with_start) {
    return [=](Communicator& comm, const Tensor& t) {
      const Tensor start =
          Tensor::zeros(t.memory(), MemoryUse::gradient, {scattered ? 8 : 16}, t.dtype());
      const Tensor given = with_start ? start : Tensor();
      if (scattered)
        comm.reduce_scatter(t, Reduction::sum, kName, given).wait();
      else
        comm.all_reduce(t, Reduction::sum, kName, given).wait();
    };
  };
  CHECK_THROWS_WITH(after_nccl<float>(in, sum(true), {.ordered = false}),
                    ContainsSubstring("needs ordered sums, and here NCCL adds"));
  CHECK_NOTHROW(after_nccl<float>(in, sum(false), {.ordered = false}));
  CHECK_NOTHROW(after_nccl<float>(in, sum(true), {.ordered = true}));
}

TEST_CASE("NCCL: data moves while the rank waits, not before, also where a Work is dropped",
          "[nccl]") {
  const auto in = inputs<float>(2, 2 * 50), gathered = after<float>(in, all_gather);
  bool early = false;
  const auto out = after_nccl<float>(in,
                                     [&](Communicator& comm, const Tensor& t) {
                                       Work work = comm.all_gather(t, kName);
                                       if (comm.rank() == 0)
                                         early = same_bits(contents<float>(t), in[0]);
                                       work.wait();
                                     },
                                     {.lagging = true});
  CHECK(early);
  CHECK(all_same_bits(out, gathered));
  const bool next_call = GENERATE(true, false);
  Buffers<float> behind(2);
  const auto dropping = [&](Communicator& comm, const Tensor& t) {
    { const Work dropped = comm.all_gather(t, kName); }
    behind[size_t(comm.rank())] = contents<float>(t);
    if (next_call) comm.barrier(kName).wait();
  };
  CHECK_THROWS_WITH(after_nccl<float>(in, dropping, {.lagging = true}),
                    ContainsSubstring("dropped the Work of all_gather 'h.1 gradient'"));
  CHECK(all_same_bits(behind, gathered));
}
