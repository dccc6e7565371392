// Collectives as steps that NCCL and MPI have in common: messages, then a kernel that uses what
// they brought. Each transport moves the messages in its way, and leaves out the steps of an empty
// call. Steps that a transport makes itself see that transport only.
#pragma once

#include <functional>
#include <vector>

#include "dist/ordered/ordered_reduction.h"

namespace zl {

// All steps of a call run one after the other on one stream. They keep its tensors and scratch.
struct Step {
  std::function<void(ChunkTransport&)> exchange;
  std::function<void()> kernel = {};
};
using Steps = std::vector<Step>;

// The address of an element [n].
inline char* address_at(const Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.address()) + element * size_of(tensor.dtype());
}

// An all_reduce or reduce_scatter in rank order; `start` as in Communicator.
Steps ordered_reduction_steps(const Tensor& tensor, const Tensor& start, const Call& call,
                              RankTopology ranks);
Steps all_gather_steps(const Tensor& full, RankTopology ranks);
Steps all_to_all_steps(const Tensor& from, const Tensor& to, RankTopology ranks);

}  // namespace zl
