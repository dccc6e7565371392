// Runs programs under the mpirun of the MPI that this build has.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <optional>
#include <string>

#include "dist/mpi/mpi_transport.h"
#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace zl::test {

struct Mpi {
  bool open_mpi;      // else MPICH
  std::string start;  // for /bin/sh: "timeout 50 /usr/bin/mpirun.mpich"
  // "mpirun -n 3"
  std::string ranks(int n) const { return start + " -n " + std::to_string(n); }
  // Whether mpirun returned the code of the ranks. MPICH's kills the others when one has ended, and
  // may return their signal.
  bool returned(const cli::Finished& run, int code) const {
    return run.code == code || (!open_mpi && run.code == SIGKILL);
  }
};

// Skips the case, with the reason, if there is none.
inline Mpi mpi_of_build() {
  const std::optional<MpiInBuild> mpi = mpi_in_build();
  if (!mpi || cli::shell("command -v " + mpi->mpirun).code != 0)
    SKIP("no MPI is built in whose mpirun is here (apt: openmpi-bin libopenmpi-dev)");
  // If mpirun were killed by the test's time limit, its ranks would go on and hold the pipes.
  const std::string within = "timeout -k 5 50 " + mpi->mpirun;
  if (!mpi->open_mpi) return {false, within};
  // The ranks have time to say why they end, also on a busy machine.
  return {true, "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + within +
                    " --oversubscribe --bind-to none --mca odls_base_sigkill_timeout 2"};
}

// `mpirun -n 3 mpi_rank CASE`; `before`: variables, "NAME=VALUE ".
inline cli::Finished mpi_rank(const Mpi& mpi, int ranks, const std::string& which,
                              const std::string& before = "") {
  return cli::shell(before + mpi.ranks(ranks) + " " + ZEROLAB_MPI_RANK + " " + which, 120);
}

// `mpirun -n 3 zerolab …`
inline cli::Finished zerolab_on(const Mpi& mpi, int ranks, const std::string& arguments,
                                double timeout = 120) {
  return cli::shell(mpi.ranks(ranks) + " $ZEROLAB " + arguments, timeout);
}

}  // namespace zl::test
