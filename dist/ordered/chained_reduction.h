// Sums in rank order over M machines of g ranks, chained from machine to machine.
//
// Ranks with the same local rank are a chain, which adds the shards of its ranks.
// For each shard the chain's rank on machine 0 adds the values of its machine's ranks in rank
// order. It sends that sum, in the type in which sums accumulate, to the chain's rank on machine 1,
// which goes on with the values there, and so on. The last one divides, rounds once, and sends the
// result to the rank of the shard. That is one addition after another in rank order, so the bits
// are those of the direct exchange. The shards of a chain follow each other: 2M-1 steps in all.
//
// For S bytes, and w the width of the accumulating type over that of the values (2 for bf16 and
// fp16, else 1), a reduce_scatter sends over the network
//     (M-1) (w + 1/M) S,  and with a start, which goes to machine 0 first,  (M-1) (w + 2/M) S
// instead of g (M-1) S. No link carries more than w S; a ring's carry (N-1)/N S. All steps together
// take as long as 2 (M-1)/M w S bytes on one link: less than the direct exchange if g > 2w. For
// smaller g it is chosen too if it sends fewer bytes: it then saves bytes, not time.
// An all_reduce gathers the sums after that, as without chains.
#pragma once

#include "dist/ordered/ordered_reduction.h"

namespace zl {

// Whether N divides the count, and fewer bytes go between machines than in a direct exchange.
bool sends_less_chained(const Call& call, bool has_start, RankTopology ranks);

class ChainedReduction final : public OrderedReduction {
 public:
  ChainedReduction(const Tensor& tensor, const Tensor& start, const Call& call, RankTopology ranks);
  int steps() const override { return 2 * machines_ - 1; }
  void exchange(int step, ChunkTransport& transport) const override;
  void add(int step) const override;

 private:
  // The machine whose shard this rank adds in a step; -1: none.
  int shard_in(int step) const;
  char* shard_of(int machine) const {  // of this chain, in the tensor
    return at(tensor_, (machine * ranks_.per_machine + local_rank_) * chunk_);
  }
  char* received_from(int local_rank) const;  // on this machine
  char* start_of(int machine) const;
  void exchange_start(int step, ChunkTransport& transport) const;
  void send_sum(int machine, ChunkTransport& transport) const;
  bool first() const { return machine_ == 0; }
  bool last() const { return machine_ == machines_ - 1; }

  const int machines_, machine_, local_rank_;
  const Dtype accumulates_in_;
  const bool start_moves_;  // each rank has only its shard of the start
  // Parts of the scratch memory: the sum, or the start, that is received, the sum that is sent, and
  // the values of this machine's other ranks.
  char *received_ = nullptr, *sum_to_send_ = nullptr, *values_ = nullptr;
};

}  // namespace zl
