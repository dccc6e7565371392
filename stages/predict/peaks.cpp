#include "stages/predict/peaks.h"

#include <algorithm>
#include <numeric>

namespace zl {

// Between the forward and the backward pass of a block, the blocks after it run twice: it stays if
// they are few, and if all the blocks that then stay fit. Both conditions are easier for later
// blocks, so the last ones stay.
size_t first_reused_block(const std::vector<int64_t>& units, const Overlap& overlap) {
  size_t first = units.size();
  for (int64_t after = 0; first > 1; --first) {
    const int64_t kept = after + units[first - 1];
    if (2 * after >= overlap.max_reuse_distance) break;
    if (units[0] + kept > overlap.max_live_parameters) break;
    after = kept;
  }
  return first;
}

// The full blocks at any time are neighbours a … b, beside root. In the forward pass a runs and the
// rest is in flight; in the backward pass b runs. Either way prefetch goes on to the far end while
// the blocks between the ends are fewer elements than prefetch_bucket_size, and while all fits. One
// block alone may be larger than the limit. When the backward pass begins, the reused blocks are
// there together.
int64_t peak_full_parameters(const std::vector<int64_t>& units, const Overlap& overlap) {
  const int64_t reused = std::accumulate(
      units.begin() + std::ptrdiff_t(first_reused_block(units, overlap)), units.end(), int64_t(0));
  int64_t most = reused;
  for (size_t a = 1; a < units.size(); ++a) {
    int64_t run = units[a], between = 0;
    most = std::max(most, run);
    for (size_t b = a + 1; b < units.size(); ++b) {
      run += units[b];
      if (between >= overlap.prefetch_bucket_size) break;
      if (units[0] + run > overlap.max_live_parameters) break;
      most = std::max(most, run);
      between += units[b];
    }
  }
  return units[0] + most;
}

// Root's gradient exists during the whole backward pass, and beside it the blocks of the bucket
// that backward fills. A bucket in flight is waited for when the next one is full: until then there
// are two.
int64_t peak_full_gradients(const std::vector<int64_t>& units, int64_t bucket,
                            bool kept_in_flight) {
  int64_t filling = 0, in_flight = 0, peak = units[0];
  for (size_t i = units.size(); i-- > 1;) {
    filling += units[i];
    peak = std::max(peak, units[0] + in_flight + filling);
    if (filling < bucket) continue;
    in_flight = kept_in_flight ? filling : 0;
    filling = 0;
  }
  return peak;
}

int64_t largest_bucket(const std::vector<int64_t>& units, int64_t bucket) {
  int64_t filling = 0, largest = 0;
  for (size_t i = units.size(); i-- > 0;) {
    filling += units[i];
    largest = std::max(largest, filling);
    if (filling >= bucket) filling = 0;
  }
  return largest;
}

}  // namespace zl
