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
    require_right(mpi_rank(mpi, 3, "without-order"), "without-order");
    for (const int ranks : {3, 4})
      require_right(mpi_rank(mpi, ranks, "without-order-in-groups"), "without-order-in-groups");
    const Finished bf16 = mpi_rank(mpi, 2, "without-order-in-bf16");
    CHECK(mpi.returned(bf16, 2));
    CHECK(contains(bf16.err, "MPI cannot add bf16; leave sums to zerolab"));
  }
}

TEST_CASE("an all-gather of 2.5 GiB on MPI is right to its last byte", "[mpi]") {
  const Mpi mpi = mpis().front();
  require_right(mpi_rank(mpi, 2, "large"), "large");
}

TEST_CASE("calls on MPI that do not match fail on all ranks, with both names", "[mpi]") {
  for (const Mpi& mpi : mpis()) {
    const Finished early = mpi_rank(mpi, 3, "mismatch");
    INFO(early.err);
    CHECK(mpi.returned(early, 4));
    CHECK(contains(early.err, "rank 1 calls all_reduce 'h.2 gradient'"));
    CHECK(contains(early.err, "while ranks 0 and 2 call all_reduce 'h.1 gradient'"));
  }
}

TEST_CASE("calls of a group on MPI that do not match fail on all ranks, also outside of it",
          "[mpi]") {
  for (const Mpi& mpi : mpis()) {
    const Finished run = mpi_rank(mpi, 3, "mismatch-in-group");
    INFO(run.err);
    CHECK(mpi.returned(run, 4));
    for (const std::string other : {"1 calls all_reduce 'h.2", "0 calls all_reduce 'h.1"})
      CHECK(contains(run.err, "rank " + other +
                                  " gradient' of 96 f32 elements (call 1 of group 'intra', ranks 0 "
                                  "and 1)"));
    if (mpi.kind == MpiKind::open_mpi) CHECK(contains(run.err, "rank 2 in barrier"));
  }
}

// Every rank says the whole sentence, because MPICH ends the others as soon as one has ended. A
// rank that has not come to the call when another one fails is not in it.
TEST_CASE("calls on MPI that differ after the comparison has ended fail too, with both sides",
          "[mpi]") {
  const std::string of_96 = " all_gather 'h.1 gradient' of 96 f32 elements (call 2)";
  for (const Mpi& mpi : mpis()) {
    const Finished late = mpi_rank(mpi, 3, "late-mismatch");
    INFO(late.err);
    CHECK(mpi.returned(late, 4));
    CHECK(
        contains(late.err, "rank 1 calls all_gather 'h.1 gradient' of 960 f32 elements (call 2)"));
    CHECK((contains(late.err, "rank 0 calls" + of_96) ||
           contains(late.err, "rank 2 calls" + of_96) ||
           contains(late.err, "ranks 0 and 2 call" + of_96)));
    CHECK(late.seconds < 40);
  }
}

TEST_CASE("a rank on MPI that is late does not hide that the calls of two others differ", "[mpi]") {
  for (const Mpi& mpi : mpis()) {
    const Finished late = mpi_rank(mpi, 3, "late-mismatch-of-two");
    INFO(late.err);
    CHECK(mpi.returned(late, 4));
    CHECK(
        contains(late.err,
                 "rank 2 calls all_gather 'h.1 gradient' of 96 f32 elements (call 2) while rank 1 "
                 "calls all_gather 'h.1 gradient' of 960 f32 elements (call 2)"));
    CHECK(late.seconds < 40);
  }
}

TEST_CASE("a Work on MPI that is dropped fails all ranks", "[mpi]") {
  for (const Mpi& mpi : mpis()) {
    const Finished dropped = mpi_rank(mpi, 3, "dropped");
    INFO(dropped.err);
    CHECK(mpi.returned(dropped, 4));
    CHECK(contains(dropped.err, "rank 1 dropped the Work of all_reduce 'h.1 gradient'"));
    // EFAULT, of Open MPI: a rank reads what another sends, whose memory is gone.
    CHECK_FALSE(contains(dropped.err, "errno = 14"));
  }
}

}  // namespace zl::test
