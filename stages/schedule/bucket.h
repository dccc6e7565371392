// Units whose communications are issued together.
#pragma once

#include <vector>

#include "stages/unit_state.h"

namespace zl {

struct Bucket {
  std::vector<UnitState*> units;
  int64_t elements = 0;  // [n] padded

  void add(UnitState& u) {
    units.push_back(&u);
    elements += u.partition.full();
  }
};

}  // namespace zl
