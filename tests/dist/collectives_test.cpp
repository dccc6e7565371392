// Every collective, type, number of ranks and awkward count against references written here.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

// Half a unit in the last place of the type, relative.
template <class T>
constexpr double rounding = 0x1p-24;
template <>
constexpr double rounding<bf16> = 0x1p-8;
template <>
constexpr double rounding<f16> = 0x1p-11;
template <>
constexpr double rounding<double> = 0x1p-53;
template <>
constexpr double rounding<int32_t> = 0;

// Whether `result` is within rounding of the same sum in long double.
template <class T>
bool near_exact(const Buffers<T>& in, Reduction reduction, const std::vector<T>& result) {
  constexpr double adding = std::is_same_v<T, double>    ? 0x1p-53
                            : std::is_same_v<T, int32_t> ? 0
                                                         : 0x1p-24;
  for (size_t i = 0; i < result.size(); ++i) {
    long double sum = 0, size = 0;
    for (const auto& buffer : in)
      sum += (long double)(buffer[i]), size += std::abs((long double)(buffer[i]));
    const long double n = reduction == Reduction::mean ? (long double)(in.size()) : 1;
    const long double bound =
        (size * double(in.size()) * adding + std::abs(sum) * rounding<T>) / n * 1.01L +
        (std::is_same_v<T, f16> ? 0x1p-24L : 0);
    if (!(std::abs((long double)(result[i]) - sum / n) <= bound)) return false;
  }
  return true;
}

template <class T>
std::vector<T> slice_of(const std::vector<T>& whole, int rank, int64_t slice) {
  return {whole.begin() + rank * slice, whole.begin() + (rank + 1) * slice};
}

std::vector<int64_t> counts(int ranks) {
  return {0, 1, ranks - 1, ranks, ranks + 1, 1009, kThreadSanitizer ? 5000 : 100000};
}
std::vector<int64_t> slices(int ranks) {
  return {0, 1, ranks - 1, ranks, ranks + 1, 101, (kThreadSanitizer ? 5000 : 100000) / ranks};
}

template <class T>
std::vector<Reduction> reductions() {
  if (std::is_same_v<T, int32_t>) return {Reduction::sum};
  return {Reduction::sum, Reduction::mean};
}

}  // namespace

#define ZL_ALL_TYPES float, bf16, f16, double, int32_t

TEMPLATE_TEST_CASE("all_reduce gives every rank the sum in rank order, bit for bit", "[dist]",
                   ZL_ALL_TYPES) {
  const int ranks = GENERATE(from_range(ranks_up_to(8)));
  for (const int64_t count : counts(ranks))
    for (const Reduction reduction : reductions<TestType>()) {
      CAPTURE(ranks, count, name(reduction));
      const auto in = inputs<TestType>(ranks, count);
      const auto expected = reduced(in, reduction);
      const auto out = after<TestType>(in, [&](Communicator& comm, const Tensor& t) {
        comm.all_reduce(t, reduction, kName).wait();
      });
      for (const auto& buffer : out) CHECK(same_bits(buffer, expected));
      CHECK(near_exact(in, reduction, expected));
    }
}

TEMPLATE_TEST_CASE("reduce_scatter gives each rank its slice of the same sum", "[dist]",
                   ZL_ALL_TYPES) {
  const int ranks = GENERATE(from_range(ranks_up_to(8)));
  for (const int64_t slice : slices(ranks))
    for (const Reduction reduction : reductions<TestType>()) {
      CAPTURE(ranks, slice, name(reduction));
      const auto in = inputs<TestType>(ranks, slice * ranks);
      const auto expected = reduced(in, reduction);
      const auto out = after<TestType>(in, [&](Communicator& comm, const Tensor& t) {
        comm.reduce_scatter(t, reduction, kName).wait();
      });
      for (int r = 0; r < ranks; ++r)
        CHECK(same_bits(slice_of(out[size_t(r)], r, slice), slice_of(expected, r, slice)));
    }
}

TEMPLATE_TEST_CASE("all_gather and all_to_all give every rank what it should have", "[dist]",
                   ZL_ALL_TYPES) {
  const int ranks = GENERATE(from_range(ranks_up_to(8)));
  for (const int64_t slice : slices(ranks)) {
    CAPTURE(ranks, slice);
    const auto in = inputs<TestType>(ranks, slice * ranks);
    std::vector<TestType> all;  // each rank's own slice
    for (int r = 0; r < ranks; ++r)
      for (const TestType& x : slice_of(in[size_t(r)], r, slice)) all.push_back(x);
    Buffers<TestType> gathered(in.size()), exchanged(in.size()), unchanged(in.size());
    run_ranks(
        ranks,
        [&](Communicator& comm) {
          const auto me = size_t(comm.rank());
          Rank rank(comm);
          const Tensor from = rank.tensor(in[me]), gather = rank.tensor(in[me]),
                       to = rank.empty(slice * ranks, dtype_of<TestType>);
          comm.all_gather(gather, kName).wait();
          comm.all_to_all(from, to, kName).wait();
          gathered[me] = contents<TestType>(gather);
          exchanged[me] = contents<TestType>(to);
          unchanged[me] = contents<TestType>(from);
        },
        within(std::chrono::seconds(20)));
    for (size_t r = 0; r < in.size(); ++r) {
      std::vector<TestType> expected;
      for (const auto& buffer : in)
        for (const TestType& x : slice_of(buffer, int(r), slice)) expected.push_back(x);
      CHECK(same_bits(gathered[r], all));
      CHECK(same_bits(exchanged[r], expected));
      CHECK(same_bits(unchanged[r], in[r]));
    }
  }
}

TEMPLATE_TEST_CASE("broadcast gives every rank the root's values", "[dist]", ZL_ALL_TYPES) {
  const int ranks = GENERATE(from_range(ranks_up_to(8)));
  for (const int64_t count : counts(ranks))
    for (const int root : {0, ranks / 2, ranks - 1}) {
      CAPTURE(ranks, count, root);
      const auto in = inputs<TestType>(ranks, count);
      const auto out = after<TestType>(
          in, [&](Communicator& comm, const Tensor& t) { comm.broadcast(t, root, kName).wait(); });
      for (const auto& buffer : out) CHECK(same_bits(buffer, in[size_t(root)]));
    }
}
