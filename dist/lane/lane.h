// A communicator whose calls another thread, the rank's lane, carries out while the rank computes.
//
// The calls are those of another engine, the inner communicator. The rank checks and logs a call
// when it issues it, so the log has the order of the program. The lane makes the same call of the
// inner communicator and waits for it there: collectives one after another in the order of issue,
// also those of a group. A send or receive is only posted in that order. It is waited for when the
// rank waits for it, so that two ranks may both send first. Work::wait() returns when the lane has
// done the call, and throws what the lane caught.
//
// The tensors of a call belong to its Work, that is to the rank: the lane never allocates or frees
// memory of a Memory, which only its rank's thread may use. So a Work that is destroyed without
// wait() first waits for the lane. If an exception unwinds the stack, it fails the run before that,
// because the other ranks may never come to the call. A Work of a send or receive must not outlive
// the communicator.
#pragma once

#include "dist/run_ranks.h"

namespace zl {

// A link that each rank sends over, simulated: a call is done no earlier than latency + sent bytes
// / bandwidth after all ranks have come to it and the calls before it have been sent.
struct Link {
  double bandwidth = 0;  // [B/s] of each rank; 0: no limit
  double latency = 0;    // [s] of each call
  bool simulated() const { return bandwidth > 0 || latency > 0; }
};

// For RankOptions::lane. What it makes labels the events of the inner communicator with the phase
// and unit in which the rank issued the call. It throws std::invalid_argument if reductions of the
// inner communicator need scratch memory, which the lane must not allocate.
MakeLane own_lane(const Link& link = {});

}  // namespace zl
