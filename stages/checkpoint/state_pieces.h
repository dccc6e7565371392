// The tensors of a run's state as a checkpoint stores them: by file, parameter and range.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/model.h"
#include "stages/stage.h"
#include "tensor/io/safetensors.h"

namespace zl {

// A data file. The first one of a state has the weights.
struct StateFile {
  std::string name;    // "exp_avg.safetensors"
  std::string tensor;  // OptimizerState::name; empty: the weights
  SafetensorsLayout layout;
};
// The same for every stage and rank.
std::vector<StateFile> state_files(Stage& stage, const Model& model);

// [n] elements that are read and written at a time.
inline constexpr int64_t kCheckpointChunk = 1 << 18;

// This rank's shards, (shard), in the order of the units and their files.
std::vector<Tensor> local_shards(Stage& stage, const std::vector<StateFile>& files);

// A part of one parameter, in one file.
struct StatePiece {
  size_t file = 0;                       // index of its StateFile
  const Parameter* parameter = nullptr;  // named in the file
  int64_t first = 0;                     // [n] element of the parameter
  Tensor values;                         // (n) part of a flat tensor
};
// Whether this rank writes its shards: of several replicas, the first does.
bool saves_shards(Stage& stage);

// The pieces in `values`, (shard): the shard of rank `owner`.
std::vector<StatePiece> pieces_of(const UnitState& u, size_t file, int owner, const Tensor& values);
// The pieces of everything that this rank keeps. Weights that are kept in two types are two pieces.
std::vector<StatePiece> kept_pieces(Stage& stage, const std::vector<StateFile>& files);

// The checksum of each tensor of each file, by name, from those of each rank's pieces: uint32_t by
// uint32_t in the order of the units, their files and pieces_of() them.
std::vector<std::map<std::string, uint32_t>> tensor_checksums(
    Stage& stage, const std::vector<StateFile>& files, const std::vector<std::string>& of_ranks);

}  // namespace zl
