// The model that a run trains: from --model, the size flags, the configuration and --init-from.
#pragma once

#include <memory>
#include <string>

#include "nn/formats/weights.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

struct ModelChoice {
  GptConfig model;
  int64_t window = 0;  // T of a micro-batch, at most the model's positions
  std::string name;    // "small", "tiny, changed by flags", "runs/a/model.safetensors"
  std::shared_ptr<const GptWeights> weights;  // to start from; null: initial values
};

// The model that a configuration or --model names, and where: "ds.json:3", "--model".
struct ConfiguredModel {
  std::string name, where;
};

// The sizes come from --init-from if it is given, a file or a folder (see open_weights; the number
// of heads is in the files, or else --n-head), else from the named model, else from the default
// model; size flags override single values of a model without a file. Throws InputError if a size
// flag or a named model contradicts the file; only the sequence may be shorter than the file's
// positions.
ModelChoice choose_model(const RunOptions& options,
                         const std::optional<ConfiguredModel>& configured);

}  // namespace zl::cli
