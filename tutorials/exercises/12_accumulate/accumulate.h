// Exercise 12: what you write.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zl::exercises {

// A step of zero3 on one rank. Parameters and gradients are bf16, and are sent as bf16; the
// optimizer has 12 bytes for each element of the rank's shard.
struct Accumulation {
  int ranks = 1;
  int64_t micro_batches = 1;  // per step
  // [n] With padding: units[0] is root, the others are blocks in the order of the forward pass.
  std::vector<int64_t> units;
};

// In all functions `keep` is FSDP2's reshard_after_backward=False.
//  - A unit is gathered before its forward or backward pass, unless it is full already.
//  - After its forward pass a block is resharded; root stays full for the backward pass.
//  - The backward pass goes from the last block to the first; root's ends last. Then each unit is
//    resharded right after its own backward pass; with `keep` only in the last micro-batch of the
//    step, and otherwise it stays full for the next micro-batch.
//  - The full gradient of root exists during the whole backward pass, that of a block while it
//    runs. Each is reduced in every micro-batch.

// [B] Sent per step, by ring collectives.
int64_t sent_bytes(const Accumulation& step, bool keep);

// [B] The most during a step: the rank's shards of parameters, gradients and optimizer state, full
// parameters, and full gradients.
int64_t peak_bytes(const Accumulation& step, bool keep);

// Whether to keep. Of the two whose peak is at most `memory` [B]: the one that sends less; of equal
// ones not to keep; none where neither fits.
std::optional<bool> choose_keep(const Accumulation& step, int64_t memory);

}  // namespace zl::exercises
