// What each call of a student's stage function allocated and freed, as the checks record it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/memory.h"

namespace zl::exercises {

// The functions of a stage file in its order; last the wait() of a Work that one of them returned.
enum class StageFunction {
  constructor,
  allocate,
  reduces_every_micro_batch,
  before_backward,
  reduce_gradient,
  after_reduce,
  update,
  after_update,
  unshard,
  reshard,
  wait
};
inline constexpr const char* kFunctionNames[] = {
    "the constructor", "allocate",        "reduces_every_micro_batch",
    "before_backward", "reduce_gradient", "after_reduce",
    "update",          "after_update",    "unshard",
    "reshard",         "Work::wait"};
inline const char* name(StageFunction function) { return kFunctionNames[size_t(function)]; }

// One call.
struct StageCall {
  StageFunction function = StageFunction::allocate;
  int unit = 0;
  int64_t event = 0;  // of the rank's event stream, from 0
  int64_t waits = 0;  // for collectives of the stage
  // [B] by which each use grew, and by which it was larger at the peak inside the call.
  std::array<int64_t, kMemoryUses> grown{}, peak{};
};

// As the numbers of a Record, and back.
inline std::vector<double> to_numbers(const std::vector<StageCall>& calls) {
  std::vector<double> all;
  for (const StageCall& call : calls) {
    for (const int64_t value : {int64_t(call.function), int64_t(call.unit), call.event, call.waits})
      all.push_back(double(value));
    for (const auto& by_use : {call.grown, call.peak})
      for (const int64_t bytes : by_use) all.push_back(double(bytes));
  }
  return all;
}
inline std::vector<StageCall> calls_from(const std::vector<double>& numbers) {
  constexpr size_t first = 4, row = first + 2 * kMemoryUses;
  std::vector<StageCall> calls;
  for (auto at = numbers.begin(); numbers.end() - at >= std::ptrdiff_t(row); at += row) {
    StageCall& call = calls.emplace_back(StageCall{.function = StageFunction(int(at[0])),
                                                   .unit = int(at[1]),
                                                   .event = int64_t(at[2]),
                                                   .waits = int64_t(at[3])});
    for (size_t use = 0; use < kMemoryUses; ++use) {
      call.grown[use] = int64_t(at[std::ptrdiff_t(first + use)]);
      call.peak[use] = int64_t(at[std::ptrdiff_t(first + kMemoryUses + use)]);
    }
  }
  return calls;
}

}  // namespace zl::exercises
