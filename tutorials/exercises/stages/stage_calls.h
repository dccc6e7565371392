// What each call of a student's stage function allocated and freed, as the checks record it.
#pragma once

#include <array>

#include "dist/call.h"
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
inline const char* name(StageFunction function) {
  static constexpr const char* names[] = {
      "the constructor", "allocate",        "reduces_every_micro_batch",
      "before_backward", "reduce_gradient", "after_reduce",
      "update",          "after_update",    "unshard",
      "reshard",         "Work::wait"};
  return names[size_t(function)];
}

// One call.
struct StageCall {
  StageFunction function = StageFunction::allocate;
  int unit = 0;
  int64_t event = 0;  // of the rank's event stream, from 0
  int64_t waits = 0;  // for collectives of the stage
  // [B] by which each use grew, and by which it was larger at the peak inside the call.
  std::array<int64_t, kMemoryUses> grown{}, peak{};
};

// What a rank sent in the whole run: a row for each purpose, collective and group. A student's code
// chooses the purpose, which may be no number of the enumeration.
struct SentRow {
  Purpose purpose{};
  Collective collective{};
  Traffic traffic;
};

}  // namespace zl::exercises
