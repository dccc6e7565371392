// Closed formulas for what a rank moves between memory spaces in one step, because shards are
// offloaded (tensor/moves.h says what a move is).
//
// A unit of n padded elements has shards of n/N. Per micro-batch, an offloaded parameter shard is
// copied to the device before each all-gather of the unit, and a reduced gradient is added to an
// offloaded gradient shard. An update moves what is not in the memory of the optimizer, and moves
// updated parameters back: ZeRO-Offload, Ren et al. 2021 (arXiv:2101.06840), section 4;
// ZeRO-Infinity, Rajbhandari et al. 2021 (arXiv:2104.07857), section 5.
#pragma once

#include "stages/predict/closed_form.h"

namespace zl {

// Whether a rank's optimizer state is on disk.
bool is_swapped(const PredictionInput& in);

// [n] Of each tensor of a rank's optimizer state that is on disk (Swap). Shards are rounded up to
// blocks of 1,024 elements, and an update takes chunks of sub_group_size, rounded likewise.
struct SwappedElements {
  int64_t stored = 0;     // on disk
  int64_t in_memory = 0;  // the most that an update holds: up to three chunks
};
SwappedElements swapped_elements(const PredictionInput& in);

// Sets `moves` and `update_moves`.
void add_moves(Prediction& prediction, const PredictionInput& in);

}  // namespace zl
