// What each check of exercise 03 computes with: sizes, ranks and values follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::ring_checks {

// 1 + kBase + kBase^2 + … of N terms is no multiple of N up to N = 5: a mean is not taken for a
// sum.
inline constexpr double kBase = 18;

struct RingCase {
  int ranks = 1;
  // By call, rank and element. Rank r has kBase^r x the value of rank 0, except in the check of
  // bits: sums are exact, and their digits say how often each rank's values are in them.
  std::vector<std::vector<std::vector<float>>> values;

  int64_t n(size_t call) const { return int64_t(values[call][0].size()); }
};

RingCase make_case(const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises::ring_checks
