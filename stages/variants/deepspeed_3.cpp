// DeepSpeed's stage 3 as shipped: zero3 that keeps small parameters in full, and reduces the
// gradients of a bucket's units in one call.
#include <unordered_map>
#include <vector>

#include "stages/variants/flat_reduction.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
  using Stage::Stage;

  void allocate(UnitState& u) override {
    if (persistent(u))
      u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    else
      u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
    if (!bucket_.defined())
      bucket_ = Tensor::empty(memory(), MemoryUse::communication, {options().reduce_bucket_size},
                              communication_type());
  }

  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  bool buckets_may_exceed() const override { return false; }
  Work reduce_gradient(UnitState& u) override {
    if (u.partition.full() > bucket_.numel()) {  // alone in its bucket
      Work work = reduce_scatter(u, u.full_gradient);
      reduced_[&u] = local_shard(u.full_gradient);
      return work;
    }
    members_.push_back(&u);
    return {};
  }
  // The bucket holds the first shard of each unit, then the second shards, and so on.
  Work reduce_bucket() override {
    int64_t all = 0, at = 0;
    for (const UnitState* u : members_) all += u->partition.shard();
    for (UnitState* u : members_) {
      const int64_t n = u->partition.shard();
      for (int r = 0; r < comm().size(); ++r)
        kernel::copy(u->full_gradient.slice(r * n, {n}), bucket_.slice(r * all + at, {n}));
      reduced_[u] = bucket_.slice(comm().rank() * all + at, {n});
      at += n;
    }
    members_.clear();
    if (all == 0) return {};
    return comm().reduce_scatter(bucket_.slice(0, {all * comm().size()}), Reduction::mean,
                                 {"bucket gradient", Purpose::gradient});
  }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(reduced_.extract(&u).mapped(), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    const Tensor parameter = persistent(u) ? local_shard(u.full_parameter) : u.parameter_shard;
    update_from_fp32(*this, *u.optimizer, parameter, u.gradient_shard, step);
  }
  Work after_update(UnitState& u) override {
    return persistent(u) ? all_gather(u, u.full_parameter) : Work{};
  }

  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    if (u.partition.full() == 0) return {};
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }

  bool persistent(const UnitState& u) const {
    return is_persistent(*u.unit, options().persistence_threshold);
  }
  Tensor bucket_;
  std::vector<UnitState*> members_;                       // of the bucket
  std::unordered_map<const UnitState*, Tensor> reduced_;  // this rank's shard of their sums
};

}  // namespace

ZL_STAGE(deepspeed_3)

}  // namespace zl
