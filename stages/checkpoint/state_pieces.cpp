#include "stages/checkpoint/state_pieces.h"

#include <cstring>

namespace zl {
namespace {

constexpr const char* kMaster = "master_weights";  // they are in the file of the weights

// The flat tensors of a unit that hold the values of a file.
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

Tensor shard_of(Stage& stage, const UnitState& u, const StateFile& file) {
  const Tensor flat = tensors_of(u, file)[0];
  return flat.numel() == u.partition.full() ? stage.local_shard(flat) : flat;
}

bool saves_shards(Stage& stage) { return stage.comm().rank() < stage.shard_group().size(); }

std::vector<StatePiece> pieces_of(const UnitState& u, size_t file, int owner,
                                  const Tensor& values) {
  std::vector<StatePiece> pieces;
  for (const Partition::Piece& p : u.partition.pieces(owner * values.numel(), values.numel()))
    pieces.push_back({.file = file,
                      .parameter = p.parameter,
                      .first = p.first,
                      .values = values.slice(p.at, {p.count})});
  return pieces;
}

std::vector<StatePiece> kept_pieces(Stage& stage, const std::vector<StateFile>& files) {
  stage.wait_for_parameters();
  std::vector<StatePiece> all;
  const int rank = stage.shard_group().rank(), shards = stage.shard_group().size();
  const bool saves = saves_shards(stage);
  for (const UnitState& u : stage.units())
    for (size_t f = 0; f < files.size(); ++f) {
      const std::vector<Tensor> tensors = tensors_of(u, files[f]);
      for (size_t t = 0; t < tensors.size(); ++t) {
        const bool full = tensors[t].numel() == u.partition.full();
        const int64_t shard = u.partition.shard();
        for (int owner = full ? 0 : rank; owner < (full ? shards : rank + 1); ++owner)
          for (StatePiece& piece : pieces_of(
                   u, f, owner, full ? tensors[t].slice(owner * shard, {shard}) : tensors[t])) {
            piece.own = saves && owner == rank && t == 0;
            all.push_back(std::move(piece));
          }
      }
    }
  return all;
}

}  // namespace zl
