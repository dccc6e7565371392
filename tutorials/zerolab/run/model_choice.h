// Which model a run trains: from --model, the size flags, a file's "zerolab" block and --init-from.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nn/formats/weights.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

struct ModelChoice {
  GptConfig model;
  int64_t window =
      0;  // T of a micro-batch; less than the model's only with weights that have more positions
  std::string name;  // "small", "tiny, changed by flags", "runs/a/model.safetensors"
  std::shared_ptr<const GptWeights> weights;  // to start from; null: initial values
};

// `configured`: the model that a config file or --set names, and where.
struct ConfiguredModel {
  std::string name, where;
};

// T = --block-size, else the positions of --init-from, else the model's; V likewise. Layers and
// width come from
// --init-from too, heads from its n_head unless --n-head is given. A size flag or a named model
// that disagrees with the file is refused, a default model never; only T may be less than the
// file's. Beside a named model, size flags override single values; without one they override the
// default model's. Throws InputError.
ModelChoice choose_model(const RunOptions& options,
                         const std::optional<ConfiguredModel>& configured);

}  // namespace zl::cli
