// What each call of a student's stage function allocated and freed, as the checks record it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/memory.h"

namespace zl::exercises {

// The functions of a stage file in its order. First the constructor, last the wait() of a Work that
// one of them returned.
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
inline constexpr int kStageFunctions = int(StageFunction::wait) + 1;
const char* name(StageFunction function);
bool has_unit(StageFunction function);

// One call.
struct StageCall {
  StageFunction function = StageFunction::allocate;
  int unit = 0;
  int64_t event = 0;  // of the rank's event stream, from 0
  // Outside the ledger: [B] by which the heap grew, and of the largest allocation.
  int64_t heap = 0, largest_on_heap = 0;
  int64_t waits = 0;  // for collectives of the stage
  // [B] by which each use grew, and by which it was larger at the peak inside the call.
  std::array<int64_t, kMemoryUses> bytes{}, most{};
  int64_t grown(MemoryUse use) const { return bytes[size_t(use)]; }
  int64_t peak(MemoryUse use) const { return most[size_t(use)]; }
};

// As the numbers of a Record, and back.
std::vector<double> to_numbers(const std::vector<StageCall>& calls);
std::vector<StageCall> calls_from(const std::vector<double>& numbers);

}  // namespace zl::exercises
