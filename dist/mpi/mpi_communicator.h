// Ranks that are processes on CPUs, with MPI moving their data.
//
// MPI moves bytes, in messages of at most 1 GiB, and by default adds nothing: reductions are those
// of dist/ordered/, in rank order, with the bits of ranks that are threads. `ordered = false` lets
// MPI add f32, f64 and i32, and promises rounding only.
//
// Ranks first check that they all make the same call, as on NCCL
// (dist/processes/fingerprint_check.h). A call posts its messages and returns. They move while a
// rank is inside MPI, and it is there only while it waits: in `Work::wait()`, or for the others to
// come to a call. So overlapping communication with computation hides little here, which is true of
// most programs on MPI. While a rank waits, all its calls go on, also through their kernels, so
// ranks may wait for them in any order. No function of MPI that is used here blocks, except the one
// that makes a group in which MPI adds: between polls a rank sees whether another one has failed,
// or its time is over.
//
// After a failure a rank never calls MPI again. Its unfinished calls keep their memory until the
// process ends: other ranks may still read what it sends, and MPI cannot withdraw a send or a
// collective. It does not call MPI_Abort either, which would kill the ranks before they have said
// why.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "dist/processes/fingerprint_check.h"

namespace zl {

struct MpiJoin {
  int rank, size;
  bool ordered;                       // else MPI adds
  std::chrono::milliseconds timeout;  // of each wait; 0: none
  std::string machine;                // the name of the rank's machine
};

// Returns when all ranks have started MPI. Throws CommunicationError, and InputError if MPI is not
// built in, or disagrees with the launcher about rank or size. The communicator's finish() returns
// when all ranks have come there; it waits for them without a deadline.
std::unique_ptr<Communicator> mpi_communicator(const MpiJoin& join, FingerprintCheck& others,
                                               EventStream& events);

// The function of MPI that this process is in, for reports; null: none.
const char* inside_mpi();

}  // namespace zl
