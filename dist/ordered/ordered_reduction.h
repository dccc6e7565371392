// Sums over ranks in rank order, for transports that send and receive (NCCL, MPI). They have the
// bits of ranks that are threads.
//
// On one machine a reduction is an all-to-all of chunks into scratch memory, one kernel that adds
// them in rank order, and for an all_reduce an all-gather of the sums. So it communicates the same
// bytes as the ring of a reduce_scatter and all_gather.
//
// Between M machines of g ranks that all-to-all sends g (M-1) S bytes for a tensor of S bytes, and
// a ring sends M (N-1)/N S. So where fewer bytes go over the network, sums are chained from machine
// to machine, with the same scratch memory. Ranks with the same local rank are a chain, which adds
// the shards of its ranks. For each shard the chain's rank on machine 0 adds the values of its
// machine's ranks in rank order. It sends that sum, in the type in which sums accumulate, to the
// chain's rank on machine 1, which goes on with the values there, and so on. The last one divides,
// rounds once, and sends the result to the rank of the shard. That is one addition after another in
// rank order, so the bits are those of the all-to-all, which is a chain of one machine. The shards
// of a chain follow each other: 2M-1 steps in all.
//
// With w the width of the accumulating type over that of the values (2 for bf16 and fp16, else 1),
// a chained reduce_scatter sends over the network
//     (M-1) (w + 1/M) S,  and with a start, which goes to machine 0 first,  (M-1) (w + 2/M) S
// instead of g (M-1) S. No link carries more than w S; a ring's carry (N-1)/N S. All steps together
// take as long as 2 (M-1)/M w S bytes on one link: less than the all-to-all if g > 2w. For smaller
// g a chain is chosen too if it sends fewer bytes: it then saves bytes, not time.
#pragma once

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
  // `start`: as in Communicator; undefined: 0.
  OrderedReduction(const Tensor& tensor, const Tensor& start, const Call& call, RankTopology ranks);
  OrderedReduction(const OrderedReduction&) = delete;
  int steps() const { return 2 * ranks_.machines() - 1; }
  void exchange(int step, ChunkTransport& transport) const;
  void add(int step) const;  // enqueued on the communication stream
  void gather_sums(ChunkTransport& transport) const;

 private:
  char* at(const Tensor& tensor, int64_t element) const;
  char* chunk_of(int rank) const { return at(tensor_, rank * chunk_); }
  int64_t length_of(int rank) const;          // [n] of its chunk
  char* received_from(int local_rank) const;  // on this machine
  // The rank of this chain whose shard this rank adds in a step; -1: none.
  int shard_in(int step) const;
  void exchange_start(int step, ChunkTransport& transport) const;
  void send_sum(int shard, ChunkTransport& transport) const;
  char* start_of(int shard) const;
  int local_rank() const { return ranks_.rank % ranks_.per_machine; }
  bool first() const { return ranks_.machine() == 0; }
  bool last() const { return ranks_.machine() == ranks_.machines() - 1; }

  const Tensor tensor_, start_;
  const Call call_;
  const RankTopology ranks_;   // one machine if nothing is chained
  const int64_t chunk_, own_;  // [n] of most ranks, of this one
  const Dtype sum_type_;
  const bool start_moves_;  // each rank has only its shard of the start
  const Tensor scratch_;
  // Its parts: the sum that is sent, the sum or start that is received, the values of this
  // machine's other ranks.
  char *sum_to_send_ = nullptr, *received_ = nullptr, *values_ = nullptr;
};

}  // namespace zl
