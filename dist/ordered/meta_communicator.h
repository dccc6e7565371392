// A communicator for dry runs: any rank of any size. It moves nothing, and checks and logs
// everything.
#pragma once

#include <memory>

#include "dist/communicator.h"

namespace zl {

// `scratch`: each reduction allocates, until it has been waited for, what NCCL and MPI need to sum
// in rank order (ordered_scratch()); ranks that are threads need nothing. `in_flight`: a
// call ends when it is waited for, as on a GPU and in a lane, so that the events say where a
// program waits; otherwise when it is issued, as among threads.
std::unique_ptr<Communicator> meta_communicator(int rank, int size, EventStream& events,
                                                bool scratch = false, bool in_flight = false);

}  // namespace zl
