// What one rank has of one unit, in three letters.
#pragma once

#include <string>

#include "stages/stage.h"

namespace zl::lesson {

// Upper case is the whole (P G O), lower case the rank's own shard (p g o), '.' nothing.
struct UnitCell {
  std::string name;
  char parameter = '.', gradient = '.', optimizer = '.';
};

// On the rank's own thread.
UnitCell look_at(const Unit& unit, const Stage& stage);

}  // namespace zl::lesson
