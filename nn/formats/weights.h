// The weights of a GPT in files: the model's configuration, then one parameter at a time, in fp32.
//
// Files are safetensors with the names of Hugging Face's GPT-2, which are also ours: one file, or
// several with an index. llm.c's format has the same interface (nn/formats/llmc.h), so a file is
// converted by opening one format and saving the other. No function here needs a second copy of the
// model in memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/gpt.h"

namespace zl {

// What files of weights say besides their tensors.
struct WeightsInfo {
  std::string types = "F32";  // of the tensors: "BF16, F32"
  std::map<std::string, std::string> metadata;
  int64_t bytes = 0;               // [B] of all files
  bool knows_heads = true;         // false: the configuration has one head
  std::vector<std::string> notes;  // about a config.json, for people
};

// An open file whose tensors have been checked against the model's configuration.
class GptWeights {
 public:
  virtual ~GptWeights() = default;
  const std::string& path() const { return path_; }
  const GptConfig& config() const { return config_; }
  const WeightsInfo& info() const { return info_; }
  virtual const char* format() const = 0;  // "safetensors", "llm.c fp32", "llm.c bf16"
  // All that was read: path(), the shards of an index, and a config.json beside it.
  virtual std::vector<std::string> files() const { return {path_}; }
  // The values of a parameter of Gpt(config()), in our layout. Thread-safe. Throws
  // std::invalid_argument if the model has no parameter of this name, InputError if reading fails.
  virtual std::vector<float> load(const std::string& name) const = 0;

 protected:
  GptWeights(std::string path, GptConfig config, WeightsInfo info)
      : path_(std::move(path)), config_(config), info_(std::move(info)) {}

 private:
  std::string path_;
  GptConfig config_;
  WeightsInfo info_;
};

// Returns all values of the named parameter, in fp32 and our layout. Called once for each
// parameter, in the order of the file.
using ParameterValues = std::function<std::vector<float>(const std::string& name)>;

// Opens a safetensors file with F32, F16 or BF16 tensors, or several by their index, which is a
// name that ends in .json (nn/formats/hugging_face.h). The prefix `transformer.` is optional; mask
// buffers are skipped; `lm_head.weight` must equal `wte.weight`. Layers, width, V and T follow from
// the tensors. The number of heads does not: it is `n_head` of the metadata, or of a config.json
// beside an index or a model.safetensors, or `heads`. Throws InputError for a wrong shape (naming
// the tensor and both shapes), for missing and unknown tensors, if the number of heads is unknown
// but needed, and if two of its sources differ.
std::unique_ptr<GptWeights> open_safetensors_weights(const std::string& path,
                                                     std::optional<int64_t> heads = {},
                                                     bool needs_heads = true);

// Opens llm.c's format or safetensors; the content decides. In a folder, such as
// a checkpoint of zerolab, takes model.safetensors, or else model.safetensors.index.json. Throws
// InputError for checkpoints of DeepSpeed and files of PyTorch (nn/formats/pytorch.h), and for a
// folder that only has folders of checkpoints: one of them must be named.
std::unique_ptr<GptWeights> open_weights(const std::string& path, std::optional<int64_t> heads = {},
                                         bool needs_heads = true);

// Writes fp32 without prefix and without lm_head.weight, in byte order of names, with the metadata
// {"format": "pt", "n_head": …}. At every time `path` is the old file or the complete new one.
// Throws InputError if it cannot be written, and what `values` throws.
void save_safetensors_weights(const std::string& path, const GptConfig& config,
                              const ParameterValues& values);

}  // namespace zl
