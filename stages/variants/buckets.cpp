#include "stages/variants/buckets.h"

#include <algorithm>

namespace zl {
namespace {

int64_t end_of(const Partition& partition, size_t parameter) {
  return parameter + 1 < partition.parameters() ? partition.offset(parameter + 1)
                                                : partition.full();
}

// `closed`: whether a cut ends before `n` more elements.
template <class Closed>
std::vector<Cut> cut(const Partition& partition, CutOrder order, const Closed& closed) {
  std::vector<Cut> cuts;
  const size_t count = partition.parameters();
  for (size_t i = 0; i < count; ++i) {
    const size_t p = order == CutOrder::forward ? i : count - 1 - i;
    const int64_t first = partition.offset(p), n = end_of(partition, p) - first;
    if (cuts.empty() || closed(cuts, n)) cuts.push_back({first, 0});
    Cut& last = cuts.back();
    last.first = std::min(last.first, first);
    last.count += n;
  }
  return cuts;
}

}  // namespace

std::vector<Cut> deepspeed_cuts(const Partition& partition, int64_t bucket, CutOrder order) {
  return cut(partition, order, [&](const std::vector<Cut>& cuts, int64_t n) {
    return cuts.back().count + n > bucket;
  });
}

std::vector<Cut> torch_cuts(const Partition& partition, int64_t element) {
  constexpr int64_t kFirst = 1 << 20, kNext = 25 << 20;  // [B]
  return cut(partition, CutOrder::backward, [&](const std::vector<Cut>& cuts, int64_t) {
    return cuts.back().count * element >= (cuts.size() == 1 ? kFirst : kNext);
  });
}

}  // namespace zl
