// Closed formulas for the most elements that full buffers of a rank take at one time.
//
// `units`: [n] padded size of each unit, root first. Every unit runs once per pass: forward root,
// then the blocks in order; backward root, then the blocks in reverse. Root stays for both passes.
#pragma once

#include <vector>

#include "stages/options.h"

namespace zl {

// The first of the blocks that stay unsharded between forward and backward; units.size(): none.
size_t first_reused_block(const std::vector<int64_t>& units, const Overlap& overlap);

// [n] Full parameters in stage 3.
int64_t peak_full_parameters(const std::vector<int64_t>& units, const Overlap& overlap);

// [n] Full gradients that are freed when they have been reduced. `bucket` [n]: reduce_bucket_size.
// `kept_in_flight`: a full gradient still exists while its bucket's reduction is in flight.
int64_t peak_full_gradients(const std::vector<int64_t>& units, int64_t bucket, bool kept_in_flight);

// [n] One bucket of the reduction: blocks from the last to the first, root at the end.
int64_t largest_bucket(const std::vector<int64_t>& units, int64_t bucket);

}  // namespace zl
