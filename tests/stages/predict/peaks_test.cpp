// Peaks at a micro-batch's program points against closed formulas, on random units.

#include "stages/predict/peaks.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "stages/steady_state.h"
#include "tensor/random.h"

using namespace zl;

namespace {

struct Draw {
  PhiloxStream random{18, 4};
  uint64_t index = 0;
  int64_t between(int64_t low, int64_t high) {
    return low + int64_t(random.uniform(index++) * double(high - low + 1));
  }
  int64_t some(int64_t most) { return between(0, 2) == 0 ? 0 : between(1, most); }
  std::vector<int64_t> units() {
    std::vector<int64_t> units(size_t(between(1, 8)));
    for (int64_t& n : units) n = 16 * between(0, 9);
    return units;
  }
};

// The full blocks at any time are neighbours a … b, beside root. In the forward pass a runs and the
// rest is in flight; in the backward pass b runs. Either way prefetch goes on to the far end while
// the blocks between the ends are fewer elements than prefetch_bucket_size, and while all fits. One
// block alone may be larger than the limit. When the backward pass begins, the reused blocks are
// there together.
int64_t full_parameters(const std::vector<int64_t>& units, const Overlap& overlap) {
  int64_t most = std::accumulate(units.begin() + std::ptrdiff_t(first_kept_block(units, overlap)),
                                 units.end(), int64_t(0));
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

}  // namespace

TEST_CASE("full parameters have a closed formula, on 20,000 random cases", "[stages]") {
  Draw draw;
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<int64_t> units = draw.units();
    Overlap overlap{.prefetch_bucket_size = draw.some(600), .max_reuse_distance = draw.some(1200)};
    if (draw.between(0, 1) == 1) overlap.max_live_parameters = draw.between(0, 1000);
    const int64_t peak = peaks_of({units, overlap}).parameters;
    if (peak == full_parameters(units, overlap)) continue;
    CAPTURE(i, units, overlap.prefetch_bucket_size, overlap.max_live_parameters,
            overlap.max_reuse_distance);
    CHECK(peak == full_parameters(units, overlap));
  }
}
