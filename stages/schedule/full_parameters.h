// When units are unsharded and resharded: right before and after their use, or as
// Options::overlap allows.
//
// Units are used in the order of their list: forward 1, 2, …, L inside root, backward L, …, 1. A
// model that uses them otherwise is correct too, but unshards units unnecessarily. All points at
// which an all-gather is issued or waited for depend on sizes alone, never on when it completes. So
// peaks of memory are exact, and all ranks make the same calls.
#pragma once

#include "stages/stage.h"

namespace zl {

// Starts the all-gather if there is none, waits for it, and binds the parameters.
void unshard(Stage& stage, UnitState& u);
void reshard(Stage& stage, UnitState& u);

class FullParameters {
 public:
  explicit FullParameters(Stage& stage);  // must outlive this

  // `u` is about to be used: unshards it, then starts to unshard the units that come next.
  void before_forward(UnitState& u) { unshard_and_prefetch(u, 1); }
  void before_backward(UnitState& u) { unshard_and_prefetch(u, -1); }
  // `u` has been used, and is not used any more in this pass.
  void after_forward(UnitState& u);
  void after_backward(UnitState& u);
  // A pass has ended: reshards what it did not use. Units that wait for backward stay.
  void end_forward();
  void end_backward();

 private:
  // `direction`: 1 or -1, in which the units of the list come next.
  void unshard_and_prefetch(UnitState& u, int direction);
  int64_t live() const;  // [n] of the units that are unsharded or unsharding

  Stage& stage_;
  std::vector<UnitState>& units_;
  const size_t first_kept_;  // blocks from here on stay unsharded between forward and backward
};

}  // namespace zl
