// The tensors of a run's state as a checkpoint stores them: by file, parameter and range.
#pragma once

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

// A part of one parameter, in one file.
struct StatePiece {
  size_t file = 0;                       // index of its StateFile
  const Parameter* parameter = nullptr;  // named in the file
  int64_t first = 0;                     // [n] element of the parameter
  Tensor values;                         // (n) part of a flat tensor
};
// Which pieces; padding is in none. Both are in the order of the units and their files.
// `shard`: what this rank saves. The shards of a shard group are the state, each element once. Of
// several groups, which are replicas, the first one writes.
// `kept`: everything that this rank keeps, which a load fills. Weights that are kept in two types
// are two pieces.
enum class StatePart { shard, kept };
std::vector<StatePiece> state_pieces(Stage& stage, const std::vector<StateFile>& files,
                                     StatePart part);

}  // namespace zl
