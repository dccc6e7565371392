// What the variants compute beside the model's kernels (stages/variants/): the division of a sum
// that several calls have added, and block quantisation of what is communicated:
// Dettmers et al. 2022 (arXiv:2110.02861), section 2.1, with linear steps. For each group of 256
// elements of a row:
//
//   scale = max |x| / steps (127 with 8 bits, 7 with 4),   code = x / scale, rounded half to even
//   x is about code * scale
//
// Then |x - code * scale| <= scale / 2, but for the rounding of these fp32 operations, less than
// 2^-15 of that. A group of zeros has scale 0. A scale is not subnormal, because x / scale would
// then be inexact. A group with NaN or infinity has such a scale and codes of 1: none of its
// elements comes back finite. The bits are the same on every device.
#pragma once

#include "tensor/backend.h"

namespace zl {

// Rows whose elements are stored as whole numbers times a scale, one for each group of 256 elements
// from the row's start.
struct Quantized {
  static constexpr int64_t kGroup = 256;  // [n]
  int bits = 8;                           // of an element: 8 (-127 … 127) or 4 (-7 … 7)
  Tensor codes;   // (R, n) u8; with 4 bits (R, n / 2), the first of two elements in the low half
  Tensor scales;  // (R, ceil(n / 256)) f32
  int largest() const { return bits == 8 ? 127 : 7; }
};

// A backend whose memory the host cannot read has its own kernels, and derives from this.
class QuantizeKernels {
 public:
  virtual ~QuantizeKernels() = default;
  virtual void quantize(const Tensor& x, const Quantized& to) = 0;
  virtual void dequantize(const Quantized& from, const Tensor& x, Write write) = 0;
  virtual void divide(double divisor, const Tensor& x) = 0;  // in place, in the compute type
};
// Those of the backend, or the host's. On meta they do nothing.
QuantizeKernels& quantize_kernels(Backend& backend);

}  // namespace zl

// As the functions of tensor/kernels.h. x: (R, n) of any float type, n even; an f64 is rounded to
// fp32 first.
namespace zl::kernel {

void quantize(const Tensor& x, const Quantized& to);
// x = code * scale, or added to x.
void dequantize(const Quantized& from, const Tensor& x, Write write = Write::set);
// x /= divisor, each element rounded once; x of any shape and float type.
void divide(double divisor, const Tensor& x);

}  // namespace zl::kernel
