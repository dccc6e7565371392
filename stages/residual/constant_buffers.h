// Constant buffers, the C_B of the ZeRO paper (Rajbhandari et al. 2020, arXiv:1910.02054, section
// 6.2): gradients in 16 bits that are reduced in fp32 need a fused fp32 buffer. If it is as large
// as all gradients, it grows with the model; with a constant size it does not.
//
// There is no switch for it: `communication_data_type` makes the buffer, and `reduce_bucket_size`
// is its size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stages/options.h"

namespace zl {

struct TrainingSpec;

// [B] of one rank. Psi: all gradients with our padding.
struct BufferSize {
  std::string bucket;    // for people: "one unit", "5e7", "all gradients"
  int64_t elements = 0;  // [n]
  // min(elements, Psi) * 4. A bucket is filled by splitting gradients where it ends.
  int64_t constant = 0;
  // Here, at the peak: a bucket ends behind the unit that fills it, and its buffer is as large as
  // the bucket.
  int64_t here = 0;
  // In deepspeed-2: elements * 4 at all times, whatever the model, and a copy of a parameter that
  // is larger than that.
  int64_t shipped = 0;
};

// The settings that make the buffer: gradients in 16 bits (bf16 where the spec has fp32), reduced
// in fp32. `elements` [n]: reduce_bucket_size.
EngineOptions with_fused_buffer(EngineOptions options, int64_t elements);

// Of buckets of one unit, 5e7, 5e8 (DeepSpeed's default) and all elements, by the closed formulas.
// The spec's stage must be one of the paper's four.
std::vector<BufferSize> constant_buffers(const TrainingSpec& spec);

}  // namespace zl
