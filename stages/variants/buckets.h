// How real systems cut one flat gradient into reductions. A cut is a range of the unit and holds
// whole parameters; padding belongs to the parameter before it.
#pragma once

#include <vector>

#include "stages/partition.h"

namespace zl {

struct Cut {
  int64_t first = 0, count = 0;  // [n]
};

enum class CutOrder { forward, backward };  // of the parameters

// DeepSpeed (stage_1_and_2.py, reduce_independent_p_g_buckets_and_remove_grads): a bucket closes
// before the parameter that would make it larger than `bucket` [n]; a larger parameter is alone.
std::vector<Cut> deepspeed_cuts(const Partition& partition, int64_t bucket, CutOrder order);

// PyTorch's DDP (reducer.cpp, compute_bucket_assignment_by_size): a bucket closes when it has 1 MiB
// (the first) or 25 MiB, parameters in reverse order. `element` [B].
std::vector<Cut> torch_cuts(const Partition& partition, int64_t element);

}  // namespace zl
