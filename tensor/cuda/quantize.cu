// Block quantisation, with the CPU's bits: the largest magnitude does not depend on an order, and
// each code comes from one IEEE division.

#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// The rows of a tensor, and their groups.
struct Groups {
  int64_t rows, n, per_row;
  explicit Groups(const Tensor& x)
      : rows(x.rows()), n(x.dim(-1)), per_row(blocks_for(x.dim(-1), Quantized::kGroup)) {}
  int64_t count() const { return rows * per_row; }
};

static_assert(Quantized::kGroup == kThreads);

// Each thread has one element of the group; the last group of a row may be shorter.
struct Element {
  int64_t at, group;
  bool exists;
  __device__ explicit Element(const Groups& g) : group(blockIdx.x) {
    const int64_t in_row = group % g.per_row * Quantized::kGroup + threadIdx.x;
    at = group / g.per_row * g.n + in_row;
    exists = in_row < g.n;
  }
};

// As the CPU: a magnitude's bits are ordered like it, with infinity and then NaN above all numbers.
// A scale is not subnormal; the codes of one that is not finite are 1.
template <class T>
__global__ void quantize_kernel(Groups groups, int bits, float steps, const T* x, uint8_t* codes,
                                float* scales) {
  const Element e(groups);
  const float value = e.exists ? float(Compute<T>(x[e.at])) : 0;
  const float largest =
      std::bit_cast<float>(block_max(int32_t(std::bit_cast<uint32_t>(value) & 0x7fffffffu)));
  const bool finite = std::bit_cast<uint32_t>(largest) < 0x7f800000u;
  constexpr float kSmallest = 0x1p-126f;
  const float divided = largest / steps;  // NaN stays
  const float scale = largest == 0 ? 0 : divided < kSmallest ? kSmallest : divided;
  const int32_t code = !finite ? 1 : scale == 0 ? 0 : int32_t(rintf(value / scale));
  if (threadIdx.x == 0) scales[e.group] = scale;
  const int32_t next = __shfl_xor_sync(0xffffffffu, code, 1);
  if (!e.exists) return;
  if (bits == 8)
    codes[e.at] = uint8_t(code);
  else if (threadIdx.x % 2 == 0)
    codes[e.at / 2] = uint8_t((code & 15) | (next << 4));
}

template <class T>
__global__ void dequantize_kernel(Groups groups, int bits, bool add, const uint8_t* codes,
                                  const float* scales, T* x) {
  const Element e(groups);
  if (!e.exists) return;
  int32_t code;
  if (bits == 8) {
    code = int8_t(codes[e.at]);
  } else {
    code = e.at % 2 ? codes[e.at / 2] >> 4 : codes[e.at / 2] & 15;
    code = code < 8 ? code : code - 16;
  }
  using F = Compute<T>;
  const float value = float(code) * scales[e.group];
  x[e.at] = T(add ? F(F(x[e.at]) + F(value)) : F(value));
}

}  // namespace

void CudaBackend::quantize(const Tensor& x, const Quantized& to) {
  const Groups groups(x);
  for_float_type(x.dtype(), [&]<class T>(T) {
    launch(*this, quantize_kernel<T>, groups.count(), kThreads, groups, to.bits,
           float(to.largest()), elements<T>(x), elements<uint8_t>(to.codes),
           elements<float>(to.scales));
  });
}

void CudaBackend::dequantize(const Quantized& from, const Tensor& x, Write write) {
  const Groups groups(x);
  for_float_type(x.dtype(), [&]<class T>(T) {
    launch(*this, dequantize_kernel<T>, groups.count(), kThreads, groups, from.bits,
           write == Write::add, elements<uint8_t>(from.codes), elements<float>(from.scales),
           elements<T>(x));
  });
}

}  // namespace zl::ZEROLAB_CUDA
