// The reduction of one flat gradient as DeepSpeed's stages 1 and 2 make it: an all-reduce of each
// bucket, of whose result a rank copies its own shard out. Twice the bytes of a reduce-scatter.
#pragma once

#include <functional>

#include "stages/stage.h"
#include "stages/variants/buckets.h"

namespace zl {

class FlatReduction {
 public:
  explicit FlatReduction(Stage& stage) : stage_(stage) {}  // must outlive this

  // One buffer of reduce_bucket_size elements, whatever the model needs. With overlap_comm two:
  // only the first is used here, and the second is there so that the ledger counts it.
  void allocate();
  void free() { buffers_ = {}; }
  // Calls `own` with each part of this rank's shard when it has been reduced, and where it begins
  // in the shard [n]. A parameter that is larger than the bucket is reduced by itself. Needs
  // allocate() in the same backward pass.
  using Own = std::function<void(const Tensor& reduced, int64_t first)>;
  void reduce(const UnitState& u, CutOrder order, const Own& own);

 private:
  Stage& stage_;
  Tensor buffers_;
};

// Updates a shard whose gradient has fewer than 32 bits from an fp32 copy of it, as DeepSpeed does.
void update_from_fp32(Stage& stage, FlatOptimizer& optimizer, const Tensor& parameter,
                      const Tensor& gradient, const Update& step);

}  // namespace zl
