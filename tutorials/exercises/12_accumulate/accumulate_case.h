// The steps of each check of exercise 12, which follow from the seed.
#pragma once

#include "tutorials/exercises/12_accumulate/accumulate.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::accumulate_checks {

// One rank first, then several. Every fourth model is root alone.
inline std::vector<Accumulation> steps_of(const CheckOptions& options) {
  Draw draw(options);
  std::vector<Accumulation> steps(16);
  for (size_t i = 0; Accumulation & step : steps) {
    step.ranks = i == 0 ? 1 : int(draw.between(2, 6));
    const bool single = options.is("one micro-batch") || (!options.is("sent") && i % 3 == 2);
    step.micro_batches = single ? 1 : draw.between(2, 5);
    for (int64_t b = i % 4 == 3 ? 0 : draw.between(2, 6); b >= 0; --b)
      step.units.push_back(16 * step.ranks * draw.between(1, 60));
    ++i;
  }
  return steps;
}

}  // namespace zl::exercises::accumulate_checks
