#include "tensor/platform/driver_turns.h"

namespace zl {

DriverTurns& DriverTurns::of_process() {
  static DriverTurns turns;
  return turns;
}

// New ones of a kind do not wait for waiting ones of the other. All ranks of an operation have
// their turn before one of them issues, and would wait for each other.
void DriverTurns::begin_issuing() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return calls_ == 0; });
  ++issuing_;
}

void DriverTurns::end_issuing() {
  const std::lock_guard lock(mutex_);
  if (--issuing_ == 0) changed_.notify_all();
}

void DriverTurns::begin_call() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return issuing_ == 0; });
  ++calls_;
}

void DriverTurns::end_call() {
  const std::lock_guard lock(mutex_);
  if (--calls_ == 0) changed_.notify_all();
}

}  // namespace zl
