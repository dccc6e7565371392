// Exercise 11: what you write.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zl::exercises {

// One rank runs on each GPU. Ranks fill the nodes one after another.
struct Cluster {
  int64_t memory = 0;  // [B] of a GPU, for parameters, gradients and optimizer state
  int gpus_per_node = 1;
  double node_bandwidth = 0;     // [B/s] from one rank to the next one of the same node
  double network_bandwidth = 0;  // [B/s] from a node to the next one; never the larger one
  double rate = 0;               // [1/s] operations of a GPU
};

struct Training {
  int ranks = 1;
  // false: all in fp32. true: parameters and gradients in bf16, which are also what is sent, and
  // the optimizer has an fp32 copy of the parameters. Adam's two moments are fp32 in both cases.
  bool mixed = false;
  std::vector<int64_t> units;  // [n] without padding; units[0] is root, and may be the only one
  int64_t micro_batches = 1;   // per step
  int64_t tokens = 0;          // of one rank in one micro-batch
};

// In all functions `stage` is 0 for ddp, 1 to 3 for zero1 to zero3. Each unit is padded to a
// multiple of 16 * ranks elements, in every stage. The numbers are those of one rank.

// [B] Parameters, gradients and optimizer state between steps.
int64_t kept_bytes(const Training& training, int stage);

// [B] The most of these during a step. Full gradients of zero2 and zero3, and full parameters of
// zero3, exist for root and one block at a time. What overlap adds is not counted.
int64_t peak_bytes(const Training& training, int stage);

// [B] Sent per step, by ring collectives: gradients and parameters.
int64_t sent_bytes(const Training& training, int stage);

// [s] A micro-batch computes 2 operations per parameter (without padding) and token forward, then 4
// backward. Communication goes at the rate of the slowest link of the ring. That of a pass overlaps
// with its computation, and the pass takes the longer of the two. Of zero3 the first gather belongs
// to the forward pass, the second one and the reduction to the backward pass. Other stages reduce
// in the backward pass, ddp and zero1 in that of the last micro-batch. The gather of zero1 and
// zero2 comes after the update, and overlaps with nothing.
double step_seconds(const Cluster& cluster, const Training& training, int stage);

// Of the stages whose peak is at most cluster.memory the fastest; of equal ones the earliest; none
// if none fits.
std::optional<int> choose_stage(const Cluster& cluster, const Training& training);

}  // namespace zl::exercises
