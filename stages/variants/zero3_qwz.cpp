// ZeRO stage 3 with quantised weights (qwZ of ZeRO++, arXiv:2306.10209, section 3.1): parameters
// are gathered in 8 bits. The shards that are updated keep all their bits.
// Reductions: in place, the mean.
// Caller: schedule/step_schedule.cpp.
#include "stages/stage.h"
#include "stages/variants/quantized.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : public Stage {
 public:
  ThisStage(std::vector<Unit>& units, Communicator& comm, Memories memories, const Options& o)
      : Stage(units, comm, memories, o) {
    require_input(!offloads_parameter(o),
                  "zero3_qwz quantizes its parameter shard on the device: leave offload_param out, "
                  "or take zero3");
  }

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
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(local_shard(u.full_gradient), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  // Full parameters exist only during the unit's forward and backward passes. They come from 8
  // bits on every rank, also where a rank has its own shard.
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    const Shape shards{comm().size(), u.partition.shard()};
    const auto all = std::make_shared<Quantized>(new_quantized(memory(), shards, 8));
    kernel::quantize(u.parameter_shard, rows(*all, comm().rank(), 1));
    return gather_quantized(comm(), *all, u.name() + " parameter", [&u, all, shards] {
      kernel::dequantize(*all, u.full_parameter.view(shards));
      *all = {};
    });
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }
};

}  // namespace

ZL_STAGE(zero3_qwz, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::reduce_scatter, Purpose::gradient, Per::micro_batch},
                   {Collective::all_gather, Purpose::parameter, Per::forward, Among::all, 8},
                   {Collective::all_gather, Purpose::parameter, Per::backward, Among::all, 8}},
         .parent = "zero3", .bits = VariantBits::lossy,
         .sentence = "gathers parameters in 8 bits (ZeRO++)")

}  // namespace zl
