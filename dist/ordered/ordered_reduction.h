// Sums over ranks in rank order, for transports that send and receive (NCCL, MPI).
//
// On one machine a reduction is an all-to-all of chunks into scratch memory, one kernel that adds
// them in rank order, and for an all_reduce an all-gather of the sums. So it communicates the same
// bytes as the ring of a reduce_scatter and all_gather, and has the same bits as ranks that are
// threads.
//
// Between M machines of g ranks that all-to-all sends g (M-1) S bytes for a tensor of S bytes, and
// a ring sends M (N-1)/N S. So where fewer bytes go over the network, sums are chained from machine
// to machine instead (dist/ordered/chained_reduction.h), with the same bits and scratch memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/call.h"
#include "tensor/tensor.h"

namespace zl {

// What a transport does for one call.
class ChunkTransport {
 public:
  virtual ~ChunkTransport() = default;
  virtual void send(const char* from, int64_t count, Dtype dtype, int to_rank) = 0;
  virtual void receive(char* to, int64_t count, Dtype dtype, int from_rank) = 0;
  // [count] from every rank, in rank order.
  virtual void all_gather(const char* from, char* to, int64_t count, Dtype dtype) = 0;
};

// The ranks and their machines: machine m has the ranks [m * per_machine, (m + 1) * per_machine).
struct RankTopology {
  int rank, size, per_machine;
  int machines() const { return size / per_machine; }
  int machine() const { return rank / per_machine; }
};

// [n] Ranks on each machine, given the machine of each rank; all of them, as if they were on one
// machine, unless the ranks are numbered machine by machine and each has as many.
int ranks_per_machine(const std::vector<std::string>& machine_of_rank);

// [n] Elements that each of N ranks adds. All chunks are equal if N divides `count`; else they
// start at multiples of 64 elements, and the last ones are shorter.
int64_t ordered_chunk(int64_t count, int ranks);

// [n] of scratch memory that a reduction of `count` elements needs on `rank`: its chunk, as each
// other rank has it.
int64_t ordered_scratch(int64_t count, int rank, int ranks);

// One reduction on one rank: for each step exchange() and add(), then for an all_reduce
// gather_sums(), all in this order on one stream; the host need not wait in between. All ranks have
// as many steps. Keeps tensor and scratch memory.
class OrderedReduction {
 public:
  virtual ~OrderedReduction() = default;
  OrderedReduction(const OrderedReduction&) = delete;
  virtual int steps() const = 0;
  virtual void exchange(int step, ChunkTransport& transport) const = 0;
  virtual void add(int step) const = 0;  // enqueued on the communication stream
  void gather_sums(ChunkTransport& transport) const;

 protected:
  OrderedReduction(const Tensor& tensor, const Tensor& start, const Call& call, RankTopology ranks);
  char* at(const Tensor& tensor, int64_t element) const;
  int64_t length_of(int rank) const;  // [n] of its chunk

  const Tensor tensor_, start_;
  const Call call_;
  const RankTopology ranks_;
  const int64_t chunk_;  // [n]
  const Tensor scratch_;
};

// `start`: as in Communicator; undefined: 0.
std::unique_ptr<OrderedReduction> ordered_reduction(const Tensor& tensor, const Tensor& start,
                                                    const Call& call, RankTopology ranks);

}  // namespace zl
