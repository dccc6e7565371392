// The most that full buffers of a rank take at one time, and what is in flight beside them: one
// micro-batch, program point by program point, by the sizes of the units alone.
//
// Every unit runs once per pass: forward root, then the blocks in order; backward root, then the
// blocks in reverse. Root stays for both passes.
//
// The full parameters at any time are those of neighbouring blocks beside root: in the forward pass
// the first of them runs and the rest is in flight, in the backward pass the last runs. Prefetch
// goes on while the blocks between the ends are fewer elements than prefetch_bucket_size, and while
// all fits max_live_parameters; one block alone may be larger. When the backward pass begins, the
// blocks that stayed for it are there together.
//
// Root's full gradient exists during the whole backward pass, and beside it those of the bucket
// that backward fills: blocks from the last to the first, root at the end. A bucket in flight is
// waited for when the next one is full; until then there are two.
#pragma once

#include <functional>
#include <vector>

#include "stages/options.h"

namespace zl {

struct Passes {
  const std::vector<int64_t>& units;  // [n] padded size of each unit, root first
  const Overlap& overlap;
  int64_t bucket = 1;              // [n] reduce_bucket_size
  bool freed_when_issued = false;  // full gradients; otherwise when their reduction was waited for
  // [B] What a unit of n elements needs while it is communicated. gather: until it is waited for.
  // reduction: change by change, the first when it is issued, the others while it is waited for;
  // they add up to 0.
  std::function<int64_t(int64_t n)> gather = [](int64_t) { return 0; };
  std::function<std::vector<int64_t>(int64_t n)> reduction = [](int64_t) {
    return std::vector<int64_t>{0};
  };
};
struct PassPeaks {
  int64_t parameters, gradients;  // [n] full ones, as stage 3 and stage 2 hold them
  int64_t in_flight;              // [B]
};
PassPeaks peaks_of(const Passes& passes);

}  // namespace zl
