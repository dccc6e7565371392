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
  // By rank and element. Rank r has kBase^r x the value of rank 0, except in the check of bits:
  // sums are exact, and say how often each rank's values are in them.
  std::vector<std::vector<float>> values;

  int64_t n() const { return int64_t(values[0].size()); }
};

// Whether the ranks have made a call before, with fewer values, of which nothing may be left.
inline bool is_second_call(const CheckOptions& options) {
  return options.is("size that N does not divide");
}

inline RingCase make_case(const CheckOptions& options) {
  Draw draw(options);
  const bool few = options.is("fewer values than ranks"),
             bits = options.is("same bits on every rank"),
             uneven = bits || options.is("size that N does not divide") || options.is("bytes sent");
  RingCase c;
  c.ranks = options.is("sum at 2 ranks")   ? 2
            : options.is("sum at 3 ranks") ? 3
            : few                          ? 5
            : options.is("one rank")       ? 1
                                           : int(draw.between(4, 5));
  c.values.resize(size_t(c.ranks));
  int64_t n = few ? draw.between(2, 4)
                  : c.ranks * draw.between(7, 19) + (uneven ? draw.between(1, c.ranks - 1) : 0);
  for (; n > 0; --n) {
    auto value = float(draw.between(1, 60) * (draw.between(0, 1) == 1 ? 1 : -1));
    for (std::vector<float>& of_rank : c.values) {
      of_rank.push_back(bits ? float(draw.normal()) : value);
      value *= float(kBase);
    }
  }
  return c;
}

}  // namespace zl::exercises::ring_checks
