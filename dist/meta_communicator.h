// A communicator for dry runs: any rank of any size. It moves nothing, and checks and logs
// everything.
#pragma once

#include <memory>

#include "dist/communicator.h"

namespace zl {

// [n] of scratch memory that a reduction of `count` elements allocates on `rank`.
using ScratchOfReduction = int64_t (*)(int64_t count, int rank, int ranks);

// `scratch`: each reduction allocates that much until it has been waited for; null: none. A
// transport that sums in rank order needs it: ordered_scratch() of dist/ordered/. `in_flight`: a
// call ends when it is waited for, as on a GPU and in a lane, so that the events say where a
// program waits; otherwise when it is issued, as among threads.
std::unique_ptr<Communicator> meta_communicator(int rank, int size, EventStream& events,
                                                ScratchOfReduction scratch = nullptr,
                                                bool in_flight = false);

}  // namespace zl
