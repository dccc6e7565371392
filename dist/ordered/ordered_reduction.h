// Sums over ranks in rank order, for transports that send and receive (NCCL, MPI).
//
// A reduction is an all-to-all of chunks into scratch memory, one kernel that adds them in rank
// order, and for an all_reduce an all-gather of the sums. So it communicates the same bytes as the
// ring of a reduce_scatter and all_gather, and has the same bits as ranks that are threads.
#pragma once

#include "dist/call.h"
#include "tensor/tensor.h"

namespace zl {

// What a transport does for one call, on elements of the call's type.
class ChunkTransport {
 public:
  virtual ~ChunkTransport() = default;
  virtual void send(const char* from, int64_t count, int to_rank) = 0;
  virtual void receive(char* to, int64_t count, int from_rank) = 0;
  // [count] from every rank, in rank order.
  virtual void all_gather(const char* from, char* to, int64_t count) = 0;
};

// [n] Elements that each of N ranks adds. All chunks are equal if N divides `count`; else they
// start at multiples of 64 elements, and the last ones are shorter.
int64_t ordered_chunk(int64_t count, int ranks);

// [n] of scratch memory that a reduction of `count` elements needs on `rank`: its chunk, as each
// other rank has it.
int64_t ordered_scratch(int64_t count, int rank, int ranks);

// One reduction on one rank: send_chunks(), add(), and for an all_reduce gather_sums(), each after
// the transport has completed the one before. Keeps tensor and scratch memory.
class OrderedReduction {
 public:
  // `start`: as in Communicator; undefined: 0.
  OrderedReduction(const Tensor& tensor, const Tensor& start, const Call& call, int rank,
                   int ranks);

  bool adds() const { return own_ > 0 && (ranks_ > 1 || start_.defined()); }
  void send_chunks(ChunkTransport& transport) const;
  void add() const;  // enqueued on the communication stream
  void gather_sums(ChunkTransport& transport) const;

 private:
  char* at(const Tensor& tensor, int64_t element) const;
  char* received_from(int rank) const;
  int64_t length_of(int rank) const;  // [n] of its chunk

  const Tensor tensor_, start_;
  const Call call_;
  const int rank_, ranks_;
  const int64_t chunk_, own_;  // [n]
  const Tensor scratch_;
};

}  // namespace zl
