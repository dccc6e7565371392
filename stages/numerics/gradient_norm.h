// The norm of the gradient that was reduced last, over all units and ranks.
#pragma once

#include "stages/stage.h"

namespace zl {

// Every rank must call it; all get the same bits. Squares are added in fp64: in blocks of 1,024
// elements from the start of each shard, then unit by unit, then in rank order. In reproducible
// mode the blocks are added one after another, in the order of the unsharded units. The host waits.
double gradient_norm(Stage& stage);

}  // namespace zl
