// The data of a check of exercise 04, and what it records of an all-reduce.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

// An all-reduce of rank 0. The record has seven numbers of each. The loop's calls in a micro-batch
// are numbered from 0: gradient_ready() of each unit, backward_done(), and wait() in the last one.
struct ReduceCall {
  int64_t step, micro_batch, unit, count;  // unit: -1: another tensor
  int64_t place;                           // in which call of the loop
  int64_t group;                           // number of its group; -1: outside
  int64_t waited = -1;  // in which call of the step's last micro-batch; -1: not before the update
};

struct DdpCase {
  uint64_t seed = 0;
  int ranks = 1;
  int64_t bucket_size = 1;     // [n]
  std::vector<int64_t> sizes;  // [n] of each unit
  // [step][micro-batch]: units in the order in which their gradients are ready.
  std::vector<std::vector<std::vector<size_t>>> ready;

  std::string unit_name(size_t unit) const;
  // In a micro-batch of this step, from number `first` on.
  bool used(size_t step, size_t unit, size_t first = 0) const;
  // "gradient_ready(h.3) of micro-batch 2, step 1".
  std::string place_text(const ReduceCall& call, int64_t place) const;
  // What backward adds: a multiple of `ranks`, so that means are exact.
  float gradient(int rank, size_t step, size_t micro_batch, size_t unit, int64_t i) const;
};

DdpCase ddp_case(const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises
