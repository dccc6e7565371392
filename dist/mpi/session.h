// MPI in this process: started once, by its first run, and ended once, by the program.
#pragma once

#include <functional>
#include <string>

#include "dist/mpi/api.h"

namespace zl {

// Starts MPI if no run of this process has. MPI may wait for the other ranks, so a separate thread
// calls MPI_Init and, as the standard requires, MPI_Finalize. Meanwhile calls `poll` again and
// again, which throws to give up; then MPI may be started later. Throws CommunicationError with
// MPI's message.
void start_mpi(const MpiApi& api, const std::function<void()>& poll);

// For a program whose runs have all succeeded, at its end: without it mpirun reports an error. A
// program that failed exits without it, since MPI would wait here for ranks that are gone. Does
// nothing if MPI was not started. Returns "", or what is wrong, also if it takes more than a
// minute.
std::string finish_mpi();

}  // namespace zl
