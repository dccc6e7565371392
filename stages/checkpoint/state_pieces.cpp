#include "stages/checkpoint/state_pieces.h"

#include <cstring>

namespace zl {
namespace {

constexpr const char* kMaster = "master_weights";  // they are in the file of the weights

// The flat tensors of a unit that hold the values of a file; of the weights, the exact ones first.
std::vector<Tensor> tensors_of(const UnitState& u, const StateFile& file) {
  if (file.tensor.empty()) {
    const Tensor& master = u.optimizer->master();
    return master.defined() ? std::vector{master, u.kept_parameter()}
                            : std::vector{u.kept_parameter()};
  }
  for (const OptimizerState& state : u.optimizer->state())
    if (state.name == file.tensor) return {state.tensor};
  throw std::logic_error(str(u.name(), " has no ", file.tensor));
}

}  // namespace

std::vector<StateFile> state_files(Stage& stage, const Model& model) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const Parameter* p : stage.parameters()) shapes.emplace_back(p->name, p->shape);
  const SafetensorsLayout layout(shapes), weights(shapes, model.metadata());
  std::vector<StateFile> files{{"model.safetensors", "", weights}};
  const UnitState& root = stage.units().front();
  for (const OptimizerState& state : root.optimizer->state())
    if (std::strcmp(state.name, kMaster) != 0)
      files.push_back({str(state.name, ".safetensors"), state.name, layout});
  return files;
}

std::vector<StatePiece> state_pieces(Stage& stage, const std::vector<StateFile>& files,
                                     StatePart part) {
  std::vector<StatePiece> all;
  for (const UnitState& u : stage.units())
    for (size_t f = 0; f < files.size(); ++f) {
      std::vector<Tensor> kept = tensors_of(u, files[f]);
      const int64_t full = u.partition.full();
      if (part == StatePart::shard)
        kept = {kept[0].numel() == full ? stage.local_shard(kept[0]) : kept[0]};
      for (const Tensor& flat : kept) {
        const int64_t n = flat.numel(), begin = n == full ? 0 : stage.shard_group().rank() * n;
        for (const Partition::Piece& p : u.partition.pieces(begin, n))
          all.push_back({f, p.parameter, p.first, flat.slice(p.at, {p.count})});
      }
    }
  return all;
}

}  // namespace zl
