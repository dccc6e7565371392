// What a stage keeps at rest and sends in a step, from what its file declares and the sizes of the
// units alone. Source: Rajbhandari et al. 2020, "ZeRO" (arXiv:1910.02054), sections 5 and 7, with
// our padding.
#pragma once

#include <algorithm>
#include <vector>

#include "dist/call.h"
#include "stages/stage_file.h"

namespace zl {

// A model on so many ranks under these options. Every unit runs once per micro-batch, blocks in the
// order of the list, inside root.
struct SteadyInput {
  const Options& options;  // after with_groups() of stages/variants/groups.h
  int ranks;
  const std::vector<int64_t>& units;  // [n] padded size of each unit, root first

  // Of a unit: each rank keeps one, and each replica all of them.
  int shards() const { return ranks / int(std::max<int64_t>(1, options.replicas)); }
  int64_t elements(Part part) const;  // [n] of a rank, of all units
};

// The first of the blocks that stay unsharded between forward and backward; units.size(): none.
// `units`: [n] as in SteadyInput.
size_t first_kept_block(const std::vector<int64_t>& units, const Overlap& overlap);

// How often a call is made for a unit. In reproducible mode every micro-batch is reduced. A unit
// without parameters has no gradient and no update. `first`: what first_kept_block() returns.
int64_t calls_per_step(const SteadyInput& in, const UnitCall& call, size_t unit, size_t first);

// Whether gradients of micro-batches are reduced one by one, and freed then, as the stage declares;
// in reproducible mode always.
bool reduces_every_micro_batch(const Options& options);

// [B] Parameters and gradients of a rank; [n] elements of its optimizer.
struct SteadyBytes {
  int64_t parameter, gradient, optimizer_elements;
};
SteadyBytes steady_bytes(const SteadyInput& in);

// Of one rank and step that updates: its collectives, and the all-gathers of the norm's and of the
// loss's parts. The row with purpose `check` is of steps whose gradient is not finite alone.
CommunicationLog steady_traffic(const SteadyInput& in);

}  // namespace zl
