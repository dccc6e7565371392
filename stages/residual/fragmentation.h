// Fragmentation of a rank's device memory in training: the events of a dry run, replayed through
// arenas (stages/residual/arena_model.h).
//
// The ZeRO paper's cure, M_D, gives contiguous chunks, allocated in advance, to two uses whose
// blocks live long between short-lived ones: activations that wait for the backward pass
// (checkpoints, where activations are recomputed), and gradients.
#pragma once

#include <vector>

#include "stages/residual/arena_model.h"
#include "tensor/events.h"

namespace zl {

struct TrainingSpec;

// Which arena a block is in where uses have their own.
enum class Chunk { kept, gradient, rest };

// An allocation or release in the device pool.
struct ChunkEvent {
  BlockEvent event;
  Chunk chunk;
};

// Records the device pool of one rank. Blocks are numbered by address.
class BlockRecorder {
 public:
  void see(const Event& event);  // of the rank's stream, from its beginning
  // In order. `kept`: an activation allocated before the backward pass and released in it.
  std::vector<ChunkEvent> events() const;

 private:
  struct Seen {
    BlockEvent event;
    bool gradient, activation, before_backward;  // the last: in the phases "data" and "forward"
  };
  std::vector<Seen> seen_;
};

struct Fragmentation {
  Fit fit;
  ArenaUse together;              // all blocks in one arena
  ArenaUse kept, gradient, rest;  // with chunks: an arena for each
  // [B] that the chunks and the rest take in all. Each of the three must fit at its own peak, so
  // this may also be more than without chunks.
  int64_t apart() const { return kept.high_water + gradient.high_water + rest.high_water; }
};
Fragmentation fragmentation(const std::vector<ChunkEvent>& events, Fit fit);

// Rank `rank` of any number, from the first allocation to the end of a dry run's three steps.
std::vector<ChunkEvent> block_events(const TrainingSpec& spec, int rank);

}  // namespace zl
