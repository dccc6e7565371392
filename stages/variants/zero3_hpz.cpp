// ZeRO stage 3 with a secondary partition (hpZ of ZeRO++, arXiv:2306.10209, section 3.2): what the
// forward pass has gathered is kept once per node, so that the backward pass gathers inside a node.
// Work: a call in flight. Reductions: in place, the mean; in reproducible mode the sum.
// Caller: schedule/step_schedule.cpp.
#include <string_view>

#include "stages/stage.h"
#include "stages/variants/groups.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : Groups, public Stage {
 public:
  ThisStage(std::vector<Unit>& units, Communicator& comm, Memories memories, const Options& o)
      : Groups(comm, o), Stage(units, comm, memories, o), secondary_(units.size()) {}

 private:
  void allocate(UnitState& u) override {
    u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    secondary(u).shard = Tensor::empty(memory(), MemoryUse::parameter,
                                       {u.partition.full() / intra().size()}, options().precision);
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }

  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  // Full parameters exist only during the unit's forward and backward passes. Forward gathers them
  // from all ranks, because they may be new.
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    if (in_backward() && secondary(u).is_current) {
      kernel::copy(secondary(u).shard, part_of_node(u.full_parameter));
      return intra().all_gather(u.full_parameter, {u.name() + " parameter", Purpose::parameter});
    }
    secondary(u).is_current = false;
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  // By now the gather has been waited for.
  void reshard(UnitState& u) override {
    if (!secondary(u).is_current) kernel::copy(part_of_node(u.full_parameter), secondary(u).shard);
    secondary(u).is_current = true;
    u.full_parameter = {};
  }

  bool in_backward() { return std::string_view(memory().events().phase()) == "backward"; }
  Tensor part_of_node(const Tensor& full) {
    const int64_t n = full.numel() / intra().size();
    return full.slice(intra().rank() * n, {n});
  }

  // This rank's shard among the ranks of its node, and whether it has the values that the last
  // gather from all ranks brought.
  struct Secondary {
    Tensor shard;
    bool is_current = false;
  };
  Secondary& secondary(const UnitState& u) { return secondary_[size_t(u.unit->index)]; }
  std::vector<Secondary> secondary_;
};

}  // namespace

ZL_STAGE(zero3_hpz, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch},
                   {Collective::all_gather, Purpose::parameter, Per::forward},
                   {Collective::all_gather, Purpose::parameter, Per::backward, Among::intra}},
         .parent = "zero3", .groups = VariantGroups::nodes, .secondary = Part::node_shard,
         .sentence = "backward gathers inside nodes of --ranks-per-node X (ZeRO++)")

}  // namespace zl
