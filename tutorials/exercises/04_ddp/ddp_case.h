// The data of a check of exercise 04, and what it records of an all-reduce.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

// An all-reduce of rank 0. The loop's calls in a micro-batch are numbered from 0: gradient_ready()
// of each unit, backward_done(), and wait() in the last one.
struct ReduceCall {
  int64_t step, micro_batch, unit, count;  // unit: -1: another tensor
  int64_t place;                           // in which call of the loop
  int64_t group;                           // number of its group; -1: outside
  int64_t waited = -1;  // in which call of the step's last micro-batch; -1: not before the update
};

struct DdpCase {
  uint64_t seed = 0;
  int ranks = 1;
  int64_t bucket_size = 1;     // [n]
  std::vector<int64_t> sizes;  // [n] of each unit
  // [step][micro-batch]: units in the order in which their gradients are ready.
  std::vector<std::vector<std::vector<size_t>>> ready;

  std::string unit_name(size_t unit) const { return unit == 0 ? "root" : str("h.", unit - 1); }
  // In a micro-batch of this step, from number `first` on.
  bool used(size_t step, size_t unit, size_t first = 0) const {
    const auto uses = [&](const auto& units) { return std::ranges::count(units, unit) > 0; };
    return std::any_of(ready[step].begin() + int64_t(first), ready[step].end(), uses);
  }
  // "gradient_ready(h.3) of micro-batch 2, step 1".
  std::string place_text(const ReduceCall& call, int64_t place) const {
    const std::vector<size_t>& units = ready[size_t(call.step)][size_t(call.micro_batch)];
    const size_t p = size_t(place), done = units.size();
    return str(p > done    ? "wait()"
               : p == done ? "backward_done()"
                           : "gradient_ready(" + unit_name(units[p]) + ")",
               " of micro-batch ", call.micro_batch + 1, ", step ", call.step + 1);
  }
  // What backward adds: a multiple of `ranks`, so that means are exact.
  float gradient(int rank, size_t step, size_t micro_batch, size_t unit, int64_t i) const {
    const uint64_t stream = ((uint64_t(rank) * 64 + step) * 64 + micro_batch) * 64 + unit;
    const PhiloxStream random{seed, stream};
    return float((int(random.block(uint64_t(i))[1] % 33) - 16) * ranks);
  }
};

inline DdpCase ddp_case(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  const bool unused = is("unused units"), three = unused || is("three micro-batches");
  DdpCase c{.seed = options.check_seed()};
  c.ranks = is("one rank")                                        ? 1
            : is("means at 2 ranks") || is("three micro-batches") ? 2
            : is("means at 3 ranks")                              ? 3
                                                                  : int(draw.between(2, 4));
  // From the last unit to the first, as in backward, but one unit comes later than its neighbour.
  std::vector<size_t> order(size_t(2 * draw.between(4, 5) + unused));
  std::iota(order.rbegin(), order.rend(), size_t(0));
  const size_t late = size_t(draw.between(2, std::ssize(order) - 2));
  std::swap(order[late], order[late - 1]);
  c.ready.assign(unused ? 2 : 1, std::vector(three ? 3 : is("buckets") ? 2 : 1, order));
  for (size_t step = 0; unused && step < 2; ++step)
    for (size_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
      std::vector<size_t>& units = c.ready[step][micro_batch];
      std::erase(units, step + 1);  // in no micro-batch
      if (micro_batch > 0) std::erase(units, 2 - step);
      if (micro_batch > 1) std::erase(units, order.size() - 2);
    }

  // The first bucket is full to the element and begins with less than a quarter of it. In others
  // the third unit is one more than fits. The last one, of 1 or 2 units, is not full.
  const std::vector<size_t>& last = c.ready[0].back();
  const int64_t first[] = {2 * draw.between(3, 7) + 1, 2 * draw.between(15, 30) + 1,
                           2 * draw.between(15, 30) + 1};
  const int64_t full = first[0] + first[1] + first[2];
  for (size_t u = 0; u < order.size(); ++u)
    c.sizes.push_back(2 * draw.between(full / 6 + 1, full / 4 - 1) + 1);
  for (size_t i = 0; i < 3; ++i) c.sizes[last[i]] = first[i];
  if (!is("one rank") && !is("means at 2 ranks")) c.bucket_size = full;
  return c;
}

}  // namespace zl::exercises
