#include "stages/train/weights.h"

#include "tensor/kernels.h"

namespace zl {

void load_weights(Stage& stage, const std::function<std::vector<float>(const Parameter&)>& values) {
  stage.wait_for_parameters();
  for (UnitState& u : stage.units()) {
    u.visit_weights(stage.shard_group().rank(),
                    [&](const Partition::Piece& piece, const Tensor& part) {
                      const Parameter& p = *piece.parameter;
                      const std::vector<float> full = values(p);
                      require(int64_t(full.size()) == p.numel(), "parameter '", p.name, "' has ",
                              p.numel(), " elements, but ", full.size(), " were given");
                      kernel::upload_floats(
                          std::span(full).subspan(size_t(piece.first), size_t(piece.count)), part);
                    });
  }
}

namespace {

// The weights of a unit in full, gathered where a rank holds its shard only: all of their bits,
// also where unshard() gathers fewer.
Tensor full_weights(Stage& stage, const UnitState& u) {
  const Tensor& master = u.optimizer->master();
  const Tensor& kept = master.defined() ? master : u.kept_parameter();
  if (kept.numel() == u.partition.full()) return kept;
  const MemoryUse use = master.defined() ? MemoryUse::communication : MemoryUse::parameter;
  const Tensor full = Tensor::empty(stage.memory(), use, {u.partition.full()}, kept.dtype());
  kernel::copy(kept, stage.local_shard(full));
  const std::string text = u.name() + (master.defined() ? " master weights" : " parameter");
  stage.shard_group().all_gather(full, {text, Purpose::parameter}).wait();
  return full;
}

}  // namespace

void visit_weights(Stage& stage, const VisitParameter& visit) {
  stage.wait_for_parameters();
  for (UnitState& u : stage.units()) {
    const Tensor full = full_weights(stage, u);
    for (size_t i = 0; i < u.unit->parameters.size(); ++i) {
      const Parameter& p = *u.unit->parameters[i];
      visit(p, full.slice(u.partition.offset(i), p.shape));
    }
  }
}

}  // namespace zl
