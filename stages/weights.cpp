#include "stages/weights.h"

#include "stages/schedule/full_parameters.h"
#include "tensor/kernels.h"

namespace zl {

void load_weights(Stage& stage, const std::function<std::vector<float>(const Parameter&)>& values) {
  stage.wait_for_parameters();
  for (const UnitState& u : stage.units())
    u.visit_weights(stage.comm().rank(), [&](const Partition::Piece& piece, const Tensor& part) {
      const Parameter& p = *piece.parameter;
      const std::vector<float> full = values(p);
      require(int64_t(full.size()) == p.numel(), "parameter '", p.name, "' has ", p.numel(),
              " elements, but ", full.size(), " were given");
      kernel::upload_floats(std::span(full).subspan(size_t(piece.first), size_t(piece.count)),
                            part);
    });
}

void visit_parameters(Stage& stage, const VisitParameter& visit) {
  for (UnitState& u : stage.units()) {
    unshard(stage, u);
    for (const Parameter* p : u.unit->parameters) visit(*p, p->data);
    reshard(stage, u);
  }
}

namespace {

// The master weights of a unit in full, gathered where a rank holds its shard only.
Tensor full_master(Stage& stage, const UnitState& u) {
  const Tensor& master = u.optimizer->master();
  if (master.numel() == u.partition.full()) return master;
  const Tensor full =
      Tensor::empty(stage.memory(), MemoryUse::communication, {u.partition.full()}, master.dtype());
  kernel::copy(master, stage.local_shard(full));
  stage.comm().all_gather(full, {u.name() + " master weights", Purpose::parameter}).wait();
  return full;
}

}  // namespace

void visit_weights(Stage& stage, const VisitParameter& visit) {
  for (UnitState& u : stage.units()) {
    const bool has_master = u.optimizer->master().defined();
    if (!has_master) unshard(stage, u);
    const Tensor full = has_master ? full_master(stage, u) : u.full_parameter;
    for (size_t i = 0; i < u.unit->parameters.size(); ++i) {
      const Parameter& p = *u.unit->parameters[i];
      visit(p, full.slice(u.partition.offset(i), p.shape));
    }
    if (!has_master) reshard(stage, u);
  }
}

}  // namespace zl
