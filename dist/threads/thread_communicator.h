// Ranks that are threads of one process, on memory that all of them can read: that of the CPU, of
// one GPU that they share, or of several GPUs.
//
// A rank reads its peers' buffers directly, without a staging copy or a buffer as large as a
// tensor. The buffers of a call stay alive until every rank has left it
// (dist/threads/rendezvous.h).
#pragma once

#include <memory>

#include "dist/threads/rendezvous.h"

namespace zl {

// That of one rank, for the rank's thread. `rendezvous` is of all ranks; it and `events`, which its
// flight recorders refer to, must outlive the result.
std::unique_ptr<Communicator> thread_communicator(int rank, int size, Rendezvous& rendezvous,
                                                  EventStream& events);

}  // namespace zl
