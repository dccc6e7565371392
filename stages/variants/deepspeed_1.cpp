// DeepSpeed's stage 1 as shipped: zero1 with one flat unit, whose gradient is all-reduced in
// buckets and freed at the update.
#include "stages/variants/flat_reduction.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.optimizer = new_shard_optimizer(u);
  }
  bool keeps_gradient() const override { return false; }

  bool reduces_every_micro_batch() const override { return false; }
  void before_backward(UnitState& u) override {
    if (!u.full_gradient.defined()) u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    reduction_.allocate();
  }
  Work reduce_gradient(UnitState&) override { return {}; }
  Work reduce_bucket() override {
    UnitState& u = units().front();
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    reduction_.reduce(u, CutOrder::forward, [&](const Tensor& reduced, int64_t first) {
      kernel::copy(reduced, u.gradient_shard.slice(first, {reduced.numel()}));
    });
    return {};
  }
  void after_reduce(UnitState& u) override { u.full_gradient = {}; }
  void after_backward() override { reduction_.free(); }

  void update(UnitState& u, const Update& step) override {
    update_from_fp32(*this, *u.optimizer, local_shard(u.full_parameter), u.gradient_shard, step);
  }
  Work after_update(UnitState& u) override { return all_gather(u, u.full_parameter); }

  FlatReduction reduction_{*this};
};

}  // namespace

ZL_STAGE(deepspeed_1)

}  // namespace zl
