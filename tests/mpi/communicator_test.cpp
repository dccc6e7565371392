// The communicator on real MPI: every collective, the order of its sums, groups, calls that are
// waited for in any order, messages larger than MPI counts, and calls that do not match.

#include <catch2/catch_test_macros.hpp>

#include "tests/mpi/mpirun.h"

namespace zl::test {
namespace {

using cli::contains;
using cli::Finished;

void require_right(const Finished& run, const std::string& which) {
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.out == which + " is right\n");
}

}  // namespace

TEST_CASE("every collective on MPI is right, in three types and at odd sizes", "[mpi]") {
  for (const Mpi& mpi : mpis())
    for (const int ranks : {1, 2, 3, 4})
      require_right(mpi_rank(mpi, ranks, "collectives"), "collectives");
  // A collective that does not take place is noticed.
  const Finished without = mpi_rank(mpis().front(), 3, "collectives", "MPI_RANK_SKIPS=1 ");
  CHECK(without.code == 1);
  CHECK(contains(without.err, "values are wrong"));
}

TEST_CASE(
    "sums on MPI are in rank order, calls may be waited for in any order, and groups are apart",
    "[mpi]") {
  for (const Mpi& mpi : mpis())
    for (const std::string which : {"order", "any-order", "groups"})
      for (const int ranks : {2, 3, 4})
        if (which != "any-order" || ranks > 2) require_right(mpi_rank(mpi, ranks, which), which);
}

TEST_CASE("MPI itself adds if the order of sums is left to it", "[mpi]") {
  for (const Mpi& mpi : mpis()) {
    for (const int ranks : {3, 4})
      require_right(mpi_rank(mpi, ranks, "without-order"), "without-order");
    const Finished bf16 = mpi_rank(mpi, 2, "without-order-in-bf16");
    CAPTURE(mpi.start, bf16.code);
    CHECK(mpi.returned(bf16, 2));
    CHECK(contains(bf16.err, "MPI cannot add bf16; leave sums to zerolab"));
  }
}

TEST_CASE("an all-gather of 2.5 GiB on MPI is right to its last byte", "[mpi]") {
  const Mpi mpi = mpis().front();
  require_right(mpi_rank(mpi, 2, "large"), "large");
}

// Every rank says the whole sentence, because MPICH ends the others as soon as one has ended. A
// rank that has not come to the call when another one fails is not in it.
TEST_CASE("calls on MPI that do not match fail on all ranks, with both sides, and a lost Work does",
          "[mpi]") {
  const std::string of_96 = " 'h.1 gradient' of 96 f32 elements (call ",
                    group =
                        " gradient' of 96 f32 elements (call 1 of group 'intra', ranks 0 and 1)";
  // Of each pair one must be said.
  using Said = std::vector<std::pair<std::string, std::string>>;
  const std::pair<std::string, Said> cases[] = {
      {"mismatch",
       {{"rank 1 calls all_reduce 'h.2 gradient'", ""},
        {"while ranks 0 and 2 call all_reduce 'h.1 gradient'", ""}}},
      {"mismatch-in-group",
       {{"rank 1 calls all_reduce 'h.2" + group, ""},
        {"rank 0 calls all_reduce 'h.1" + group, ""}}},
      {"late-mismatch",
       {{"rank 1 calls all_gather 'h.1 gradient' of 960 f32 elements (call 2)", ""},
        {" calls all_gather" + of_96 + "2)", "ranks 0 and 2 call all_gather" + of_96 + "2)"}}},
      {"late-mismatch-of-two",
       {{"rank 2 calls all_gather" + of_96 +
             "2) while rank 1 calls all_gather 'h.1 gradient' of "
             "960 f32 elements (call 2)",
         ""}}},
      {"dropped", {{"rank 1 dropped the Work of all_reduce 'h.1 gradient'", ""}}}};
  for (const Mpi& mpi : mpis())
    for (const auto& [which, said] : cases) {
      const Finished run = mpi_rank(mpi, 3, which);
      INFO(which << "\n" << run.err);
      CHECK(mpi.returned(run, 4));
      for (const auto& [one, other] : said)
        CHECK((contains(run.err, one) || (!other.empty() && contains(run.err, other))));
      if (which == "mismatch-in-group" && mpi.kind == MpiKind::open_mpi)
        CHECK(contains(run.err, "rank 2 in barrier"));  // outside of the group
      // EFAULT, of Open MPI: a rank reads what another sends, whose memory is gone.
      if (which == "dropped") CHECK_FALSE(contains(run.err, "errno = 14"));
      CHECK(run.seconds < 40);
    }
}

}  // namespace zl::test
