// The JSON files that Hugging Face writes beside safetensors files: the index of a model in several
// files, and the configuration of the model.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "tensor/io/safetensors.h"

namespace zl {

// Opens the files that an index names, in the order of their names. An index is
//   {"metadata": {"total_size": 288}, "weight_map": {"wte.weight":
//   "model-00001-of-00002.safetensors"}}
// with all tensors in weight_map, and files in its own folder. total_size [B] is optional. Throws
// InputError for an invalid index, for names of files outside its folder, for missing files, unless
// index and files have the same tensors in the same places, and if total_size is not their bytes.
std::deque<SafetensorsFile> open_shards(const std::string& index);

// The n_head of a config.json; none if there is no such file, or no n_head in it. Throws InputError
// if it is not valid JSON, or if n_head is not a whole number from 1.
std::optional<int64_t> heads_of_config(const std::string& path);

}  // namespace zl
