// ZeRO stage 3 with quantised gradients (qgZ of ZeRO++, arXiv:2306.10209, section 3.3): gradients
// are reduced in 4 bits and two levels. Ranks of a node exchange them and add, then nodes do.
// Caller: schedule/step_schedule.cpp.
#include <map>

#include "stages/stage.h"
#include "stages/variants/groups.h"
#include "stages/variants/quantized.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

class ThisStage final : Groups, public Stage {
 public:
  ThisStage(std::vector<Unit>& units, Communicator& comm, Memories memories, const Options& o)
      : Groups(comm, o), Stage(units, comm, memories, without_gradient_type(o)) {}

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
  // Row x * Y + y is the shard of rank x of node y: rank x of this node passes it on.
  Work reduce_gradient(UnitState& u) override {
    const int64_t X = intra().size(), Y = inter().size(), n = u.partition.shard();
    in_flight_[&u].sent = new_quantized(memory(), {X * Y, n}, 4);
    in_flight_[&u].received = new_quantized(memory(), {X * Y, n}, 4);
    for (int64_t x = 0; x < X; ++x)
      for (int64_t y = 0; y < Y; ++y)
        kernel::quantize(u.full_gradient.slice((y * X + x) * n, {n}),
                         rows(in_flight_[&u].sent, x * Y + y, 1));
    return exchange_quantized(intra(), in_flight_[&u].sent, in_flight_[&u].received,
                              u.name() + " gradient", [this, &u] { reduce_between_nodes(u); });
  }
  void reduce_between_nodes(UnitState& u) {
    const int64_t X = intra().size(), Y = inter().size(), n = u.partition.shard();
    in_flight_[&u].sent = {};
    in_flight_[&u].sum = sum_of_ranks(std::exchange(in_flight_[&u].received, {}), {Y, n}, X);
    in_flight_[&u].sent = new_quantized(memory(), {Y, n}, 4);
    kernel::quantize(in_flight_[&u].sum, in_flight_[&u].sent);
    in_flight_[&u].sum = {};
    in_flight_[&u].received = new_quantized(memory(), {Y, n}, 4);
    exchange_quantized(inter(), in_flight_[&u].sent, in_flight_[&u].received,
                       u.name() + " gradient", [this, &u] { in_flight_[&u].sent = {}; })
        .wait();
    in_flight_[&u].sum = sum_of_ranks(std::exchange(in_flight_[&u].received, {}), {1, n}, Y);
    kernel::divide(comm().size(), in_flight_[&u].sum);
  }
  void after_reduce(UnitState& u) override {
    kernel::accumulate(std::exchange(in_flight_[&u].sum, {}), u.gradient_shard);
    u.full_gradient = {};
  }

  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }

  // Full parameters exist only during the unit's forward and backward passes.
  Work unshard(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }

  // While a reduction is in flight: what is sent and received, and the fp32 sum that comes of it.
  struct InFlight {
    Quantized sent, received;
    Tensor sum;
  };
  std::map<const UnitState*, InFlight> in_flight_;
};

}  // namespace

ZL_STAGE(zero3_qgz, .parameter = Part::shard, .gradient = Part::shard, .optimizer = Part::shard,
         .calls = {{Collective::all_to_all, Purpose::gradient, Per::micro_batch, Among::intra, 4},
                   {Collective::all_to_all, Purpose::gradient, Per::micro_batch, Among::inter, 4},
                   {Collective::all_gather, Purpose::parameter, Per::forward},
                   {Collective::all_gather, Purpose::parameter, Per::backward}},
         .parent = "zero3", .bits = VariantBits::lossy, .groups = VariantGroups::nodes,
         .sentence = "reduces gradients in 4 bits, inside nodes, then between (ZeRO++)")

}  // namespace zl
