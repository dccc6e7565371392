// The steps of each check of exercise 12, which follow from the seed, and what is right for them.
#pragma once

#include <algorithm>
#include <numeric>

#include "tutorials/exercises/12_accumulate/accumulate.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::accumulate_checks {

// One of the two ways to make a step, what it must send and hold, and the memory for the choice.
struct Way {
  Accumulation step;
  bool keep;
  int64_t memory = 0;
  double N = step.ranks, A = double(step.micro_batches), root = double(step.units[0]),
         all = std::accumulate(step.units.begin(), step.units.end(), 0.0), blocks = all - root;

  // [B] Of elements that go around the ring.
  double ring(double n) const { return n / N * (N - 1) * 2; }
  double elements() const {
    return A * all + (keep ? root + (A + 1) * blocks : A * (root + 2 * blocks));
  }
  double sent() const { return ring(elements()); }
  // The block that runs has its parameters and its gradient; those that have run may stay.
  double peak_if(bool they_stay) const {
    double stays = 0, most = 0;
    for (size_t u = step.units.size(); u-- > 1;) {
      const auto n = double(step.units[u]);
      most = std::max(most, stays + 2 * n);
      if (they_stay) stays += n;
    }
    return 16 * all / N + 2 * (2 * root + most);
  }
  double peak() const { return peak_if(keep && A > 1); }
};

// One rank first, then several. Every fourth model is root alone. The memory for the choice is one
// of the two right peaks, or one byte less.
inline std::vector<Way> ways_of(const CheckOptions& options) {
  Draw draw(options);
  std::vector<Way> ways;
  for (int i = 0; i < 16; ++i) {
    Accumulation step{.ranks = i == 0 ? 1 : int(draw.between(2, 6))};
    const bool single = options.is("one micro-batch") || (!options.is("sent") && i % 3 == 2);
    step.micro_batches = single ? 1 : draw.between(2, 5);
    for (int64_t b = i % 4 == 3 ? 0 : draw.between(2, 6); b >= 0; --b)
      step.units.push_back(16 * step.ranks * draw.between(1, 60));
    for (const bool keep : {false, true})
      for (int64_t less = 0; less <= options.is("the choice"); ++less) {
        ways.push_back({step, keep});
        ways.back().memory = int64_t(ways.back().peak()) - less;
      }
  }
  return ways;
}

}  // namespace zl::exercises::accumulate_checks
