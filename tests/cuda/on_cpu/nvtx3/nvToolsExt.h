// The part of NVTX that tensor/cuda uses. Records the ranges for tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zl::cuda_on_cpu {
struct Ranges {
  std::vector<std::string> begun;  // all so far, in order
  std::map<uint64_t, std::string> open;
};
inline thread_local Ranges ranges;
}  // namespace zl::cuda_on_cpu

using nvtxRangeId_t = uint64_t;
inline nvtxRangeId_t nvtxRangeStartA(const char* name) {
  zl::cuda_on_cpu::Ranges& ranges = zl::cuda_on_cpu::ranges;
  ranges.begun.push_back(name);
  ranges.open[ranges.begun.size()] = name;
  return ranges.begun.size();
}
inline void nvtxRangeEnd(nvtxRangeId_t range) { zl::cuda_on_cpu::ranges.open.erase(range); }
