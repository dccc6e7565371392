// The weights of a GPT in llm.c's model format (karpathy/llm.c, train_gpt2.py, write_model).
//
// The header is 256 int32: magic 20240326; version, 3 for fp32 and 5 for bf16; block size, V,
// layers, heads, width; V padded to a multiple of 128. The tensors follow, all layers of a kind
// together. Linear weights are (out, in), while ours are (in, out). The token table includes the
// padding, whose rows are zero. All numbers are little-endian.
#pragma once

#include "nn/formats/weights.h"

namespace zl {

// Opens such a file; the rows of the padding are dropped. Throws InputError if the header is not
// that of a model, if it does not fit the file's size, or if `heads` is given and differs from the
// header.
std::unique_ptr<GptWeights> open_llmc_weights(const std::string& path,
                                              std::optional<int64_t> heads = {});

// Writes version 3. At every time `path` is the old file or the complete new one. Calls `values` in
// the order of the file. Throws InputError if the file cannot be written, and what `values` throws.
void save_llmc_weights(const std::string& path, const GptConfig& config,
                       const ParameterValues& values);

}  // namespace zl
