// Ranks that are processes on CPUs, with MPI moving their data.
//
// MPI moves bytes, in messages of at most 1 GiB, and by default adds nothing: reductions are those
// of dist/ordered/, in rank order, with the bits of ranks that are threads. `ordered = false` lets
// MPI add f32, f64 and i32, and promises rounding only.
//
// Ranks first check that they all make the same collective, as on NCCL
// (dist/processes/control_client.h). A call then moves its data, and returns when that is done, as
// among threads: MPI moves data only while a rank is inside it, so a program on MPI hides little
// communication behind its computation in any case. No function of MPI that is used here blocks,
// except the one that makes a group in which MPI adds: between polls a rank sees whether another
// one has failed, or its time is over. There is no send and receive.
// Each group of ranks has its own tag; only where MPI adds does it have a communicator.
//
// After a failure a rank never calls MPI again. Its unfinished call keeps its memory until the
// process ends: other ranks may still read what it sends, and MPI cannot withdraw a send or a
// collective. It does not call MPI_Abort either, which would kill the ranks before they have said
// why.
#pragma once

#include "dist/processes/process_ranks.h"

namespace zl {

// `ordered`: sums in rank order; else MPI adds, equal but for rounding. Throws InputError if MPI is
// not built in, and when ranks join if it disagrees with the launcher about rank or size. Its
// communicator is there when all ranks have started MPI, and its finish() returns when all ranks
// have come there; it waits for them without a deadline. A program that has run on MPI calls
// finish_mpi() at its end (dist/mpi/library.h).
ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options, bool ordered);

}  // namespace zl
