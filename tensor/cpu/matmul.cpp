#include <algorithm>
#include <type_traits>
#include <utility>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/gemm.h"

namespace zl {
namespace {

// bf16 and f16 are multiplied in fp32, piece by piece, so that the fp32 copies stay small. A piece
// along K is a multiple of gemm's blocks, so the sums have the same bits as without pieces.
constexpr int64_t kPiece = 512;
static_assert(kPiece % kDepthBlock == 0);

struct Sizes {
  int64_t m, n, k;
};

Sizes piece(const Sizes& all) {
  return {std::min(all.m, kPiece), std::min(all.n, kPiece), std::min(all.k, kPiece)};
}

int64_t aligned(int64_t elements) { return round_up(elements, 16); }  // 64 bytes of fp32

template <class T>
struct Operands {
  GemmFactor<T> a, b;
  T* c;
  Write write;
  const T* bias;  // or null
};

// Converts the piece of a factor that begins at (row, column) of the matrix that matmul reads.
template <class T>
GemmFactor<float> widen(const GemmFactor<T>& f, int64_t row, int64_t column, int64_t rows,
                        int64_t columns, float* to) {
  if (f.transpose == Transpose::yes) std::swap(row, column), std::swap(rows, columns);
  convert(f.data + row * f.stride + column, f.stride, to, columns, rows, columns);
  return {to, columns, f.transpose};
}

template <class T>
void multiply_in_pieces(const Sizes& all, const Operands<T>& o, float* workspace) {
  const Sizes p = piece(all);
  float* a = workspace;
  float* b = a + aligned(p.m * p.k);
  float* c = b + aligned(p.k * p.n);
  float* gemm_workspace = c + aligned(p.m * p.n);
  for (int64_t n0 = 0; n0 < all.n; n0 += kPiece) {
    float bias[kPiece];
    if (o.bias) convert(o.bias + n0, 0, bias, 0, 1, std::min(kPiece, all.n - n0));
    for (int64_t m0 = 0; m0 < all.m; m0 += kPiece) {
      const int64_t m = std::min(kPiece, all.m - m0), n = std::min(kPiece, all.n - n0);
      T* out = o.c + m0 * all.n + n0;
      if (o.write == Write::add) convert(out, all.n, c, n, m, n);
      int64_t k0 = 0;
      do {  // at least once: K = 0 sets zeros or the bias
        const int64_t k = std::min(kPiece, all.k - k0);
        const Write write = k0 == 0 ? o.write : Write::add;
        gemm<float>({m, n, k, widen(o.a, m0, k0, m, k, a), widen(o.b, k0, n0, k, n, b), c, n, write,
                     1.0f, gemm_workspace, o.bias ? bias : nullptr});
        k0 += k;
      } while (k0 < all.k);
      convert(c, n, out, all.n, m, n);
    }
  }
}

}  // namespace

int64_t matmul_workspace(int64_t M, int64_t N, int64_t K, Dtype dtype) {
  if (dtype == Dtype::f64) return 8 * gemm_workspace(M, N, K);
  if (dtype == Dtype::f32) return 4 * gemm_workspace(M, N, K);
  const Sizes p = piece({M, N, K});
  return 4 * (aligned(p.m * p.k) + aligned(p.k * p.n) + aligned(p.m * p.n) +
              gemm_workspace(p.m, p.n, p.k));
}

void CpuBackend::matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
                        const Tensor& workspace) {
  const int64_t N = out.dim(-1), M = N ? out.numel() / N : 0;
  if (M == 0 || N == 0) return;
  const int64_t K = a.tensor.numel() / M;
  for_float_type(out.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const auto factor = [](const Factor& f) {
      return GemmFactor<T>{f.tensor.data<T>().data(), f.tensor.dim(-1), f.transpose};
    };
    const Operands<T> o{factor(a), factor(b), out.data<T>().data(), write,
                        bias.defined() ? bias.data<T>().data() : nullptr};
    F* scratch = static_cast<F*>(workspace.address());
    if constexpr (std::is_same_v<T, F>) {
      gemm<T>({M, N, K, o.a, o.b, o.c, N, write, T(1), scratch, o.bias});
    } else {
      multiply_in_pieces(Sizes{M, N, K}, o, scratch);
    }
  });
}

}  // namespace zl
