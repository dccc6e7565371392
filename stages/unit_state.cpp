#include "stages/unit_state.h"

namespace zl {
namespace {

void bind(const UnitState& u, Tensor Parameter::*member, const Tensor& full) {
  for (size_t i = 0; i < u.unit->parameters.size(); ++i) {
    Parameter& p = *u.unit->parameters[i];
    p.*member = full.defined() ? full.slice(u.partition.offset(i), p.shape) : Tensor{};
  }
}

}  // namespace

void UnitState::bind_parameters(const Tensor& full) { bind(*this, &Parameter::data, full); }
void UnitState::bind_gradients(const Tensor& full) { bind(*this, &Parameter::grad, full); }

void UnitState::visit_weights(int rank, const Visit& visit) const {
  for (const Tensor& flat : {kept_parameter(), optimizer->master()}) {
    if (!flat.defined()) continue;
    const int64_t first = flat.numel() == partition.full() ? 0 : rank * partition.shard();
    for (const Partition::Piece& piece : partition.pieces(first, flat.numel()))
      visit(piece, flat.slice(piece.at, {piece.count}));
  }
}

}  // namespace zl
