// The legend of memory uses, the same in all pictures.
#pragma once

#include <vector>

#include "tensor/memory.h"
#include "tutorials/zerolab/draw/svg.h"

namespace zl::draw {

// In one line that begins at `at`. Returns where it ends.
double draw_legend(Svg& svg, Point at, const std::vector<MemoryUse>& uses);

}  // namespace zl::draw
