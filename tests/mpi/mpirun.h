// Runs programs under mpirun, that of each MPI that this build has.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <string>
#include <vector>

#include "dist/mpi/library.h"
#include "tests/zerolab/process.h"

namespace zl::test {

struct Mpi {
  MpiKind kind;
  std::string start;  // for /bin/sh: "mpirun.mpich"
  // "mpirun -n 3"
  std::string ranks(int n) const { return start + " -n " + std::to_string(n); }
  // Whether mpirun returned the code of the ranks. MPICH's kills the others when one has ended, and
  // may return their signal.
  bool returned(const cli::Finished& run, int code) const {
    return run.code == code || (kind == MpiKind::mpich && run.code == SIGKILL);
  }
};

// Skips the case, with the reason, if there is none.
inline std::vector<Mpi> mpis() {
  std::vector<Mpi> all;
  for (const MpiInBuild& mpi : mpis_in_build()) {
    const bool open_mpi = mpi.kind == MpiKind::open_mpi;
    const std::string name = mpiruns(mpi.kind).front();
    if (cli::shell("command -v " + name).code != 0) continue;
    // If mpirun were killed by the test's time limit, its ranks would go on and hold the pipes.
    const std::string within = "timeout -k 5 50 " + name;
    all.push_back({mpi.kind, open_mpi
                                 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " +
                                       within + " --oversubscribe --bind-to none"
                                 : within});
  }
  if (all.empty())
    SKIP("no MPI is built in whose mpirun is on PATH (apt: openmpi-bin libopenmpi-dev)");
  return all;
}

// `mpirun -n 3 mpi_rank CASE`; `before`: variables, "NAME=VALUE ".
cli::Finished mpi_rank(const Mpi& mpi, int ranks, const std::string& which,
                       const std::string& before = "");

// `mpirun -n 3 zerolab …`
inline cli::Finished zerolab_on(const Mpi& mpi, int ranks, const std::string& arguments,
                                double timeout = 120) {
  return cli::shell(mpi.ranks(ranks) + " $ZEROLAB " + arguments, timeout);
}

}  // namespace zl::test
