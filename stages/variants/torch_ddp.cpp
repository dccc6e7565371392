// PyTorch's DDP as shipped: ddp with one flat unit, whose gradient is copied into buckets that are
// never freed (gradient_as_bucket_view is false by default); gradients are freed after the step.
#include <vector>

#include "stages/stage.h"
#include "stages/variants/buckets.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    require(units().size() == 1, "one flat gradient needs StageOptions::grouping = group_all");
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.optimizer = new_full_optimizer(u);
    cuts_ = torch_cuts(u.partition, size_of(communication_type()));
    for (const Cut& cut : cuts_)
      buckets_.push_back(
          Tensor::empty(memory(), MemoryUse::communication, {cut.count}, communication_type()));
  }
  bool keeps_gradient() const override { return false; }

  bool reduces_every_micro_batch() const override { return false; }
  void before_backward(UnitState& u) override {
    if (!u.full_gradient.defined()) u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState&) override { return {}; }
  Work reduce_bucket() override {
    const UnitState& u = units().front();
    for (size_t i = 0; i < cuts_.size(); ++i) {
      const Tensor part = u.full_gradient.slice(cuts_[i].first, {cuts_[i].count});
      kernel::copy(part, buckets_[i]);
      comm()
          .all_reduce(buckets_[i], Reduction::mean, {u.name() + " gradient", Purpose::gradient})
          .wait();
      kernel::copy(buckets_[i], part);
    }
    return {};
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.full_parameter, u.full_gradient, step.lr, step.gradient_scale);
  }

  std::vector<Cut> cuts_;
  std::vector<Tensor> buckets_;
};

}  // namespace

ZL_STAGE(torch_ddp)

}  // namespace zl
