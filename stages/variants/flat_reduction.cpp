#include "stages/variants/flat_reduction.h"

#include <algorithm>

#include "tensor/kernels.h"

namespace zl {

void FlatReduction::allocate() {
  require(stage_.units().size() == 1, "one flat gradient needs StageOptions::grouping = group_all");
  const int64_t copies = stage_.options().overlap.overlap_comm ? 2 : 1;
  if (!buffers_.defined())
    buffers_ =
        Tensor::empty(stage_.memory(), MemoryUse::communication,
                      {copies * stage_.options().reduce_bucket_size}, stage_.communication_type());
}

void FlatReduction::reduce(const UnitState& u, CutOrder order, const Own& own) {
  require(buffers_.defined(), "reduce: allocate() was not called in this backward pass");
  const int64_t bucket = stage_.options().reduce_bucket_size, shard = u.partition.shard(),
                begin = stage_.comm().rank() * shard;
  const std::string text = u.name() + " gradient";
  for (const Cut& cut : deepspeed_cuts(u.partition, bucket, order)) {
    const Tensor part = u.full_gradient.slice(cut.first, {cut.count});
    Tensor sum = part;
    if (cut.count <= bucket)
      sum = buffers_.slice(0, {cut.count});
    else if (part.dtype() != stage_.communication_type())
      sum = Tensor::empty(stage_.memory(), MemoryUse::communication, {cut.count},
                          stage_.communication_type());
    if (cut.count <= bucket || sum.dtype() != part.dtype()) kernel::copy(part, sum);
    stage_.comm().all_reduce(sum, Reduction::mean, {text, Purpose::gradient}).wait();
    const int64_t first = std::max(cut.first, begin),
                  last = std::min(cut.first + cut.count, begin + shard);
    if (first < last) own(sum.slice(first - cut.first, {last - first}), first - begin);
  }
}

void update_from_fp32(Stage& stage, FlatOptimizer& optimizer, const Tensor& parameter,
                      const Tensor& gradient, const Update& step) {
  Tensor copy = gradient;
  if (size_of(gradient.dtype()) < size_of(Dtype::f32)) {
    copy = Tensor::empty(stage.memory(), MemoryUse::gradient, {gradient.numel()}, Dtype::f32);
    kernel::copy(gradient, copy);
  }
  optimizer.update(parameter, copy, step.lr, step.gradient_scale);
}

}  // namespace zl
