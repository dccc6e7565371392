// The weights of a GPT in files: what the file says about the model, then one parameter at a time,
// in fp32.
//
// Files are safetensors with the names of Hugging Face's GPT-2, which are ours; nn/formats/llmc.h
// has llm.c's format behind the same interface, so converting is opening one and saving the other.
// No function here holds a second copy of the model.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/gpt.h"

namespace zl {

// An open file whose tensors have been checked against the model that they make up.
class GptWeights {
 public:
  virtual ~GptWeights() = default;
  const std::string& path() const { return path_; }
  const GptConfig& config() const { return config_; }
  virtual const char* format() const = 0;  // "safetensors", "llm.c fp32", "llm.c bf16"
  // The values of a parameter of Gpt(config()), in our layout. Several threads may load at once.
  // Throws std::invalid_argument for a name that the model does not have, InputError if reading
  // fails.
  virtual std::vector<float> load(const std::string& name) const = 0;

 protected:
  GptWeights(std::string path, GptConfig config) : path_(std::move(path)), config_(config) {}

 private:
  std::string path_;
  GptConfig config_;
};

// All values of the named parameter, in fp32 and our layout. Called once for each parameter, in the
// file's order.
using ParameterValues = std::function<std::vector<float>(const std::string& name)>;

// Opens a safetensors file: F32, F16 or BF16; prefix `transformer.` optional; mask buffers are
// skipped; `lm_head.weight` must equal `wte.weight`. Layers, width, V and T are those of the
// tensors. The number of heads cannot be seen in them: it is `n_head` of the metadata, or else
// `heads`. Throws InputError naming the tensor, the expected and the found shape; for missing and
// unknown tensors; if neither says how many heads there are, and if both do and differ.
std::unique_ptr<GptWeights> open_safetensors_weights(const std::string& path,
                                                     std::optional<int64_t> heads = {});

// Opens a name that ends in .bin as llm.c's format, any other as safetensors.
std::unique_ptr<GptWeights> open_weights(const std::string& path,
                                         std::optional<int64_t> heads = {});

// Writes fp32, whole, without prefix and without lm_head.weight, in byte order of names, with
// metadata
// {"format": "pt", "n_head": …}. `path` holds the old file or the whole new one. Throws InputError
// if it cannot be written, and what `values` throws.
void save_safetensors_weights(const std::string& path, const GptConfig& config,
                              const ParameterValues& values);

}  // namespace zl
