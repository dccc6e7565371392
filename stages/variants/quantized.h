// Quantised tensors on their way between ranks: their codes and their scales, in two calls.
#pragma once

#include <functional>
#include <string>

#include "dist/communicator.h"
#include "stages/stage_file.h"
#include "tensor/platform/quantize.h"

namespace zl {

// The options. Throws InputError if they say in which type gradients are communicated.
const Options& without_gradient_type(const Options& options);

// Uninitialised. shape: (R, n).
Quantized new_quantized(Memory& memory, const Shape& shape, int bits);
// Rows [first, first + count).
Quantized rows(const Quantized& all, int64_t first, int64_t count);

// The fp32 sum, on the device, of what came from `ranks` ranks in their order: `shape` rows from
// each. `received` is freed then.
Tensor sum_of_ranks(Quantized received, const Shape& shape, int64_t ranks);

// Each starts two collectives; then() runs when both have been waited for. Rows are divided among
// the ranks. In the log, scales have their own purpose, and codes that of `name`: "… parameter" or
// "… gradient".
Work gather_quantized(Communicator& comm, const Quantized& all, const std::string& name,
                      std::function<void()> then);
Work exchange_quantized(Communicator& comm, const Quantized& from, const Quantized& to,
                        const std::string& name, std::function<void()> then);

}  // namespace zl
