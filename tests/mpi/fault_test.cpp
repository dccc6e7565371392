// Ranks on MPI that die or stop, and `zerolab launch` as mpirun. The others end in time and name
// the rank. MPICH's mpirun kills all ranks as soon as one has died: there only the end counts.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tensor/error.h"
#include "tests/mpi/mpirun.h"

namespace zl::test {
namespace {

using cli::contains;
using cli::Finished;

const std::string kLong = " --backend mpi --model tiny --steps 1000000 --device cpu --timeout 4 ";

// The processes whose command line has `mark`, other than launchers, by the number of their rank.
std::map<int, pid_t> ranks_with(const std::string& mark) {
  std::map<int, pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string path = entry.path().string(), line = cli::read_file(path + "/cmdline");
    if (!contains(line, mark) || !line.starts_with(ZEROLAB_BINARY)) continue;
    const std::string environment = cli::read_file(path + "/environ");
    for (const std::string name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK="})
      if (const size_t at = environment.find(std::string("\0", 1) + name);
          at != std::string::npos) {
        found[std::atoi(environment.c_str() + at + 1 + name.size())] =
            pid_t(std::stoi(entry.path().filename().string()));
        break;
      }
  }
  return found;
}

// When the run has made steps: `signal` for one of its ranks.
std::function<void(pid_t, const std::string&)> hit(const std::string& mark, int rank, int signal) {
  return [=, done = false](pid_t, const std::string& err) mutable {
    if (done || !contains(err, "  loss ")) return;
    const auto ranks = ranks_with(mark);
    if (const auto found = ranks.find(rank); found != ranks.end())
      done = kill(found->second, signal) == 0;
  };
}

struct Hit {
  int rank, signal;
};

// A run of 3 ranks one of which is hit.
Finished run_until(const Mpi& mpi, Hit one, const std::string& mark) {
  return cli::shell(mpi.ranks(3) + " $ZEROLAB train --seed " + mark + kLong, 60,
                    hit(std::string("--seed") + '\0' + mark, one.rank, one.signal));
}

std::vector<std::string> failures(const Finished& run) {
  std::vector<std::string> all;
  for (const std::string& line : cli::lines(run.err))
    if (const size_t at = line.find("zerolab: "); at == 0 || (at != line.npos && line[0] == '['))
      all.push_back(line.substr(at));
  return all;
}

}  // namespace

TEST_CASE("a rank on MPI that is killed or stopped is named by all others, which end", "[mpi]") {
  const Mpi mpi = mpi_of_build();
  for (const Hit one : {Hit{0, SIGKILL}, {1, SIGKILL}, {2, SIGKILL}, {1, SIGSTOP}}) {
    const bool stops = one.signal == SIGSTOP;
    if (!mpi.open_mpi && (stops || one.rank != 1)) continue;
    const Finished run = run_until(mpi, one, str("8", one.signal, "000", one.rank));
    INFO(run.err);
    CHECK(run.code != 0);
    CHECK_FALSE(run.timed_out);
    CHECK(run.seconds < 40);
    if (!mpi.open_mpi) continue;
    CHECK(run.code == (stops ? 4 : 128 + SIGKILL));  // mpirun's: that of the first rank to end
    if (stops) CHECK(contains(run.err, "rank 1 has given no sign of life for"));
    const auto said = failures(run);
    CHECK((stops || said.size() == 2));
    for (const std::string& line : said)
      CHECK((stops || contains(line, str("rank ", one.rank, " has died"))));
  }
}

TEST_CASE("launch becomes mpirun for ranks on MPI, whose exit code it returns", "[mpi]") {
  const Mpi mpi = mpi_of_build();
  const Finished run =
      cli::shell("$ZEROLAB launch -n 3 -- train --backend mpi --model tiny --steps 2 --device cpu");
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.out.starts_with("loss "));
  CHECK(contains(run.err, "step 2/2 "));
  const Finished refused = cli::shell(
      "$ZEROLAB launch -n 3 -- train --backend mpi --model tiny --steps 2 --micro-batch");
  CHECK(mpi.returned(refused, 2));
  CHECK(contains(refused.err, "zerolab: train has no flag '--micro-batch'"));
}

TEST_CASE("a signal to launch ends ranks on MPI, and those of Open MPI save a checkpoint",
          "[mpi]") {
  const Mpi mpi = mpi_of_build();
  const cli::ScratchFolder folder;
  cli::Launch launch{.arguments = {"launch", "-n", "2", "--", "train", "--backend", "mpi",
                                   "--model", "tiny", "--steps", "1000000", "--save-every",
                                   "100000", "--device", "cpu", "--out", folder / "run"},
                     .timeout = 60};
  launch.watch = [sent = false](pid_t process, const std::string& err) mutable {
    if (sent || !contains(err, "  loss ")) return;
    sent = kill(process, SIGTERM) == 0;
  };
  const Finished run = cli::run(launch);
  INFO(run.err);
  CHECK(run.code != 0);  // mpirun's
  CHECK_FALSE(run.timed_out);
  bool saved = false;
  for (const std::string& file : cli::files_in(folder / "run"))
    saved = saved || file.starts_with("step-");
  CHECK((saved || !mpi.open_mpi));  // MPICH's mpirun kills the ranks at once
}

namespace {

void require_right(const Finished& run, const std::string& which) {
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.out == which + " is right\n");
}

}  // namespace

TEST_CASE("every collective on MPI is right, in three types and at odd sizes", "[mpi]") {
  const Mpi mpi = mpi_of_build();
  for (const int ranks : {1, 2, 3, 4})
    require_right(mpi_rank(mpi, ranks, "collectives"), "collectives");
  // A collective that does not take place is noticed.
  const Finished without = mpi_rank(mpi, 3, "collectives", "MPI_RANK_SKIPS=1 ");
  CHECK(without.code == 1);
  CHECK(contains(without.err, "values are wrong"));
}

TEST_CASE(
    "sums on MPI are in rank order, calls may be waited for in any order, and groups are apart",
    "[mpi]") {
  const Mpi mpi = mpi_of_build();
  for (const std::string which : {"order", "any-order", "groups"})
    for (const int ranks : {2, 3, 4})
      if (which != "any-order" || ranks > 2) require_right(mpi_rank(mpi, ranks, which), which);
}

TEST_CASE("an all-gather of 2.5 GiB on MPI is right to its last byte", "[mpi]") {
  const Mpi mpi = mpi_of_build();
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
  const Mpi mpi = mpi_of_build();
  for (const auto& [which, said] : cases) {
    const Finished run = mpi_rank(mpi, 3, which);
    INFO(which << "\n" << run.err);
    CHECK(mpi.returned(run, 4));
    for (const auto& [one, other] : said)
      CHECK((contains(run.err, one) || (!other.empty() && contains(run.err, other))));
    if (which == "mismatch-in-group" && mpi.open_mpi)
      CHECK(contains(run.err, "rank 2 in barrier"));  // outside of the group
    // EFAULT, of Open MPI: a rank reads what another sends, whose memory is gone.
    if (which == "dropped") CHECK_FALSE(contains(run.err, "errno = 14"));
    CHECK(run.seconds < 40);
  }
}

}  // namespace zl::test
