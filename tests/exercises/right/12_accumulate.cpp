// Exercise 12: accumulate with or without resharding. task.md has the question, accumulate.h the
// contract.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "tutorials/exercises/12_accumulate/accumulate.h"

namespace zl::exercises {
//>
namespace {

int64_t sum(const std::vector<int64_t>& units) {
  return std::accumulate(units.begin(), units.end(), int64_t{0});
}

}  // namespace
//<

// How often does each unit go around the ring in a step?
int64_t sent_bytes(const Accumulation& step, bool keep) {
  //> throw std::logic_error("not written yet: sent_bytes");
  const int64_t A = step.micro_batches, all = sum(step.units), root = step.units[0];
  const int64_t blocks = all - root;
  const int64_t gathered = keep ? root + (A + 1) * blocks : A * (root + 2 * blocks);
  const int64_t reduced = A * all;
  return (gathered + reduced) / step.ranks * (step.ranks - 1) * 2;
  //<
}

// Which units are full while a block runs its backward pass?
int64_t peak_bytes(const Accumulation& step, bool keep) {
  //> throw std::logic_error("not written yet: peak_bytes");
  const bool stay = keep && step.micro_batches > 1;
  int64_t full = 0, most = 0;  // [n] of blocks that have run; of all blocks at the peak
  for (size_t u = step.units.size(); u-- > 1;) {
    most = std::max(most, full + 2 * step.units[u]);
    if (stay) full += step.units[u];
  }
  return 16 * sum(step.units) / step.ranks + 2 * (2 * step.units[0] + most);
  //<
}

std::optional<bool> choose_keep(const Accumulation& step, int64_t memory) {
  //> throw std::logic_error("not written yet: choose_keep");
  if (peak_bytes(step, false) > memory) return {};
  return peak_bytes(step, true) <= memory && sent_bytes(step, true) < sent_bytes(step, false);
  //<
}

}  // namespace zl::exercises
