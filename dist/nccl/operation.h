// Within dist/nccl/*.cpp: what a call of NcclCommunicator keeps while its data moves.
#pragma once

#include "dist/nccl/nccl_communicator.h"
#include "tensor/backend.h"

namespace zl {

// A call of this rank, from its agreement until its data has moved. Its Work owns it, so that no
// tensor outlives the rank's memory; whoever drops the Work waits for the data.
struct NcclCommunicator::Moving {
  enum class State { met, issued, done };
  Moving(NcclCommunicator& owner, const Tensor& tensor, const Call& call)
      : owner(owner), call(call), tensor(tensor) {}
  Moving(const Moving&) = delete;
  ~Moving() { owner.drop(*this); }

  NcclCommunicator& owner;
  Call call;
  Tensor tensor, scratch;
  Tensor to;                 // of an all_to_all
  Part first, kernel, last;  // in the communication lane, one after the other; the first and the
                             // last in a group of NCCL
  int64_t record = 0;        // in the flight recorder; of a send or receive also its letter
  std::shared_ptr<const StreamEvent> moved;
  State state = State::met;
};

}  // namespace zl
