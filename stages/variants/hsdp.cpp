// HSDP, also MiCS (arXiv:2205.00119): ZeRO stage 3 inside each group of N / R ranks. The R groups
// are replicas, which add their gradients once per step. Reductions are sums; in f16, means.
// Caller: schedule/step_schedule.cpp.
#include "stages/stage.h"
#include "stages/variants/groups.h"
#include "tensor/kernels.h"
#include "tensor/platform/quantize.h"

namespace zl {
namespace {

class ThisStage final : Groups, public Stage {
 public:
  ThisStage(std::vector<Unit>& units, Communicator& comm, Memories memories, const Options& o)
      : Groups(comm, o), Stage(units, comm, memories, o, inter().size() > 1 ? &intra() : nullptr) {}

 private:
  void allocate(UnitState& u) override {
    u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override {
    return intra().reduce_scatter(gradient_to_reduce(u, u.full_gradient), reduction(),
                                  {u.name() + " gradient", Purpose::gradient});
  }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }
  // All micro-batches are added. Divided once, by the number of all ranks.
  Work reduce_across(UnitState& u) override {
    return and_then(sum_of_replicas(u), [this, &u] {
      kernel::divide(reduction() == Reduction::mean ? 1 : comm().size(), u.gradient_shard);
    });
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  // Full parameters exist only during the unit's forward and backward passes.
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return intra().all_gather(u.full_parameter, {u.name() + " parameter", Purpose::parameter});
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }

  // The sum is not divided yet; but in f16, whose numbers end at 65,504, each takes the mean.
  Reduction reduction() const {
    const bool f16 =
        gradient_type(options()) == Dtype::f16 || options().communication_data_type == Dtype::f16;
    return f16 ? Reduction::mean : Reduction::sum;
  }

  // In communication_dtype, in a copy on the device if the shard is offloaded or has another type.
  Work sum_of_replicas(UnitState& u) {
    Tensor sum = u.gradient_shard;
    const bool copied = sum.dtype() != communication_type(options()) || &sum.memory() != &memory();
    if (copied) {
      sum = Tensor::empty(memory(), MemoryUse::communication, sum.shape(),
                          communication_type(options()));
      kernel::copy(u.gradient_shard, sum);
    }
    Work work = inter().all_reduce(sum, reduction(), {u.name() + " gradient", Purpose::gradient});
    return and_then(std::move(work), [&u, sum, copied]() mutable {
      if (copied) kernel::copy(sum, u.gradient_shard);
      sum = {};
    });
  }
};

}  // namespace

ZL_STAGE(hsdp, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch, Among::intra},
                   {Collective::all_reduce, Purpose::gradient, Per::step, Among::inter},
                   {Collective::all_gather, Purpose::parameter, Per::forward, Among::intra},
                   {Collective::all_gather, Purpose::parameter, Per::backward, Among::intra}},
         .parent = "zero3", .bits = VariantBits::rounding, .groups = VariantGroups::replicas,
         .sentence = "inside each of --replicas R groups, which add gradients once per step")

}  // namespace zl
