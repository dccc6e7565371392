// A collective on known values: counts wrong results, and measures the time of a call.
#pragma once

#include <cstdint>

#include "dist/communicator.h"

namespace zl {

struct TrialSpec {
  Collective kind =
      Collective::all_reduce;  // send: each rank sends to the next and receives from the one before
  int64_t count = 0;  // [n] of the unsharded side; collectives with slices need a multiple of the
                      // number of ranks
  Dtype dtype = Dtype::f32;
};

// One rank's part. All ranks make the same trials in the same order. Reductions are sums.
class CollectiveTrial {
 public:
  // Allocates the buffers, as communication. All must outlive it.
  CollectiveTrial(const TrialSpec& spec, Communicator& comm, Memory& memory);

  void fill();   // writes this rank's values, and elsewhere a value that no result has
  void clear();  // zeros, which stay zeros however often they are added
  void call();   // returns when this rank's result is there
  // After fill() and call(): how many of this rank's results are wrong. The values are small whole
  // numbers, so that every sum of at most 64 of them is exact in every type and order.
  int64_t wrong() const;
  // [ns] of one call, from when all ranks have written what they send and are ready. From then on
  // ranks compare calls only on a timeout: between processes a comparison would take longer than a
  // small call.
  int64_t time();

  // The tensor with the result; of a reduce_scatter its local shard.
  const Tensor& result() const { return to_.defined() ? to_ : from_; }

 private:
  double input(int rank, int64_t i) const;  // element i of what `rank` brings
  double expected(int64_t i) const;

  const TrialSpec spec_;
  Communicator& comm_;
  Tensor from_, to_;  // to_: of collectives that do not work in place
  int64_t shard_;     // [n]
};

}  // namespace zl
