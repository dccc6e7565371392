#include "stages/checkpoint/state_pieces.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "dist/processes/wire.h"
#include "tensor/io/crc32c.h"

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

std::vector<Tensor> local_shards(Stage& stage, const std::vector<StateFile>& files) {
  std::vector<Tensor> shards;
  for (const UnitState& u : stage.units())
    for (const StateFile& file : files) {
      const Tensor flat = tensors_of(u, file)[0];
      shards.push_back(flat.numel() == u.partition.full() ? stage.local_shard(flat) : flat);
    }
  return shards;
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
  const int rank = stage.shard_group().rank();
  for (const UnitState& u : stage.units())
    for (size_t f = 0; f < files.size(); ++f)
      for (const Tensor& kept : tensors_of(u, files[f])) {
        const bool full = kept.numel() == u.partition.full();
        std::ranges::move(pieces_of(u, f, full ? 0 : rank, kept), std::back_inserter(all));
      }
  return all;
}

std::vector<std::map<std::string, uint32_t>> tensor_checksums(
    Stage& stage, const std::vector<StateFile>& files, const std::vector<std::string>& of_ranks) {
  std::vector<std::map<std::string, uint32_t>> all;
  for (const StateFile& file : files)
    for (all.emplace_back(); const SafetensorsLayout::Item& item : file.layout.items())
      all.back()[item.name] = 0;  // of no elements
  for (int owner = 0; owner < stage.shard_group().size(); ++owner) {
    WireReader crcs(of_ranks[size_t(owner)]);
    for (const UnitState& u : stage.units())
      for (auto& file : all)
        for (const Partition::Piece& p :
             u.partition.pieces(owner * u.partition.shard(), u.partition.shard())) {
          uint32_t& crc = file[p.parameter->name];
          crc = crc32c_join(crc, crcs.get<uint32_t>(), 4 * p.count);
        }
  }
  return all;
}

}  // namespace zl
