// Which gradients are reduced together, and when each reduction is waited for.
//
// With overlap_comm one bucket's reduction is in flight while backward fills the next bucket. It is
// waited for before the next one is issued, and at the end of backward. So at most two buckets of
// full gradients exist at one time, beside root's.
#pragma once

#include <vector>

#include "stages/stage.h"

namespace zl {

// Units whose communications are issued together.
struct Bucket {
  std::vector<UnitState*> units;
  int64_t elements = 0;  // [n] padded

  void add(UnitState& u) {
    units.push_back(&u);
    elements += u.partition.full();
  }
};

class GradientReductions {
 public:
  explicit GradientReductions(Stage& stage) : stage_(stage) {}  // must outlive this

  // The gradient of `u` is complete. It is reduced when its bucket is full.
  void add(UnitState& u);
  // Reduces what is left. Returns when every reduction has finished.
  void finish();

 private:
  void issue();
  void wait();

  struct InFlight {
    UnitState* unit;
    Work work;
  };
  Stage& stage_;
  Bucket bucket_;
  std::vector<InFlight> in_flight_;  // of one bucket
};

}  // namespace zl
