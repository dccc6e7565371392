// Adding the ranks' values: in rank order, whatever the chunk, the count or who does it.
#pragma once

#include <cstdint>
#include <span>

#include "dist/call.h"

namespace zl {

// Elements [begin, end) of every buffer.
struct Range {
  int64_t begin = 0, end = 0;  // [n]
};

// Adds the ranks' elements of `range` in the order of `buffers` and writes the result into the same
// elements of each of `results`, which may be some of the buffers. Adds in fp32 (fp64 for f64,
// modulo 2^32 for i32); a mean is divided once, after adding; then rounded to the type. Never
// throws.
void reduce(std::span<char* const> buffers, std::span<char* const> results, Range range,
            const Call& call) noexcept;

}  // namespace zl
