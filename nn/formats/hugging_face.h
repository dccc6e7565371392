// The JSON files that Hugging Face writes beside safetensors files: the index of a model in several
// files, and the configuration of the model.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "nn/gpt.h"
#include "tensor/io/safetensors.h"

namespace zl {

// Opens the files that an index names, in the order of their names. An index is
//   {"metadata": {"total_size": 288}, "weight_map": {"wte.weight":
//   "model-00001-of-00002.safetensors"}}
// with all tensors in weight_map, and files in its own folder. total_size [B] is optional. Throws
// InputError for an invalid index, for names of files outside its folder, for missing files, unless
// index and files have the same tensors in the same places, and if total_size is not their bytes.
std::deque<SafetensorsFile> open_shards(const std::string& index);

// What config.json says about the weights beside it.
struct HuggingFaceConfig {
  std::optional<int64_t> heads;    // n_head
  std::vector<std::string> notes;  // for people: what is ignored, and what training does not do
};

// `weights`: the sizes that the weights show, which are all but the heads. Every key of GPT-2 is
// honoured, or known to change nothing, or else the value is refused. Throws InputError if the file
// cannot be read or is not valid JSON, or if a value has a wrong type, contradicts the weights or
// gives another model than Gpt.
HuggingFaceConfig read_hugging_face_config(const std::string& path, const GptConfig& weights);

}  // namespace zl
