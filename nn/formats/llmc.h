// The weights of a GPT in llm.c's model format (karpathy/llm.c, train_gpt2.py, write_model).
//
// A header of 256 int32: magic 20240326; version, 3 for fp32 and 5 for bf16; block size, V, layers,
// heads, width; V padded to a multiple of 128. Then the tensors, all layers of a kind together,
// linear weights as (out, in) where ours are (in, out), and the token table with the rows of the
// padding, which are zero. All numbers little-endian.
#pragma once

#include "nn/formats/weights.h"

namespace zl {

// Throws InputError if the header is not that of a model, if the file's size is not what the header
// says, or if `heads` is given and is not the header's. Rows of the padding are dropped.
std::unique_ptr<GptWeights> open_llmc_weights(const std::string& path,
                                              std::optional<int64_t> heads = {});

// Writes version 3. `path` holds the old file or the whole new one. Throws InputError if it cannot
// be written, and what `values` throws; it is called kind by kind, as the tensors stand in the
// file.
void save_llmc_weights(const std::string& path, const GptConfig& config,
                       const ParameterValues& values);

}  // namespace zl
