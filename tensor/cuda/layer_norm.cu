// Layer norm: one warp per row.
#include "tensor/cuda/column_sums.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr int kRowsOfBlock = kThreads / kWarp;

__device__ inline int64_t row_of_warp() { return first_element() / kWarp; }

// Calls visit(c) for the first column of each pack of columns that this thread of the warp has.
template <int kPack, class Visit>
__device__ void for_packs(int64_t C, Visit visit) {
  for (int64_t c = int64_t(lane()) * kPack; c < C; c += kWarp * kPack) visit(c);
}

// The input of a layer norm and its row statistics.
template <class T>
struct Rows {
  using F = Compute<T>;
  int64_t R, C;
  const T *x, *weight;
  F *mean, *rstd;
  explicit Rows(const LayerNormSaved& saved)
      : R(saved.mean.numel()),
        C(saved.weight.numel()),
        x(elements<T>(saved.x)),
        weight(elements<T>(saved.weight)),
        mean(elements<F>(saved.mean)),
        rstd(elements<F>(saved.rstd)) {}
};

template <int kPack, class T>
__global__ void layer_norm_kernel(Rows<T> rows, const T* bias, Compute<T> eps, T* y) {
  using F = Compute<T>;
  const int64_t r = row_of_warp(), C = rows.C;
  if (r >= rows.R) return;  // all threads of the warp; the kernel has no __syncthreads
  const T* x = rows.x + r * C;
  // Two passes: E[x^2] - E[x]^2 would cancel where the mean is large.
  F sum = 0, squares = 0;
  for_packs<kPack>(C, [&](int64_t c) {
    const auto pack = load_pack<kPack>(x + c);
    for (int j = 0; j < kPack; ++j) sum += F(pack.at[j]);
  });
  const F mean = warp_sum(sum) / F(C);
  for_packs<kPack>(C, [&](int64_t c) {
    const auto pack = load_pack<kPack>(x + c);
    for (int j = 0; j < kPack; ++j) squares += (F(pack.at[j]) - mean) * (F(pack.at[j]) - mean);
  });
  const F rstd = F(1) / sqrt(warp_sum(squares) / F(C) + eps);
  for_packs<kPack>(C, [&](int64_t c) {
    const auto w = load_pack<kPack>(rows.weight + c), b = load_pack<kPack>(bias + c);
    auto pack = load_pack<kPack>(x + c);
    for (int j = 0; j < kPack; ++j)
      pack.at[j] = T((F(pack.at[j]) - mean) * rstd * F(w.at[j]) + F(b.at[j]));
    store_pack(pack, y + r * C + c);
  });
  if (lane() == 0) rows.mean[r] = mean, rows.rstd[r] = rstd;
}

// With n = normalised x and d = dy * weight: dx = rstd * (d - mean(d) - n * mean(d * n)).
template <int kPack, class T>
__global__ void backward_rows_kernel(Rows<T> rows, const T* dy, T* dx, bool adds) {
  using F = Compute<T>;
  const int64_t r = row_of_warp(), C = rows.C;
  if (r >= rows.R) return;  // all threads of the warp
  const F mean = rows.mean[r], rstd = rows.rstd[r];
  // Calls visit(j, d, n) for the elements of the packs at column c.
  const auto for_elements = [&](int64_t c, auto visit) {
    const auto x = load_pack<kPack>(rows.x + r * C + c),
               incoming = load_pack<kPack>(dy + r * C + c), w = load_pack<kPack>(rows.weight + c);
    for (int j = 0; j < kPack; ++j)
      visit(j, F(incoming.at[j]) * F(w.at[j]), (F(x.at[j]) - mean) * rstd);
  };
  F sum_d = 0, sum_dn = 0;
  for_packs<kPack>(
      C, [&](int64_t c) { for_elements(c, [&](int, F d, F n) { sum_d += d, sum_dn += d * n; }); });
  const F mean_d = warp_sum(sum_d) / F(C), mean_dn = warp_sum(sum_dn) / F(C);
  for_packs<kPack>(C, [&](int64_t c) {
    T* const to = dx + r * C + c;
    Pack<T, kPack> out;
    if (adds) out = load_pack<kPack>(to);
    for_elements(c, [&](int j, F d, F n) {
      const F value = rstd * (d - mean_d - n * mean_dn);
      out.at[j] = T(adds ? F(out.at[j]) + value : value);
    });
    store_pack(out, to);
  });
}

// The terms of dweight and dbias.
template <class T>
struct WeightTerms {
  Rows<T> rows;
  const T* dy;
  template <int kPack>
  __device__ void add(int64_t r, int64_t c, PackSums<Compute<T>, 2, kPack>& sums) const {
    using F = Compute<T>;
    const auto x = load_pack<kPack>(rows.x + r * rows.C + c),
               incoming = load_pack<kPack>(dy + r * rows.C + c);
    const F mean = rows.mean[r], rstd = rows.rstd[r];
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      sums[0][j] += F(incoming.at[j]) * ((F(x.at[j]) - mean) * rstd);
      sums[1][j] += F(incoming.at[j]);
    }
  }
};

}  // namespace

void CudaBackend::layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                             const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    const Rows<T> rows(saved);
    T *const b = elements<T>(bias), *const to = elements<T>(y);
    constexpr int kPack = pack_of<T>();
    const bool packs = rows.C % kPack == 0 && packs_fit(rows.x, rows.weight, b, to);
    launch(*this, packs ? layer_norm_kernel<kPack, T> : layer_norm_kernel<1, T>,
           blocks_for(rows.R, kRowsOfBlock), kThreads, rows, b, Compute<T>(eps), to);
  });
}

void CudaBackend::layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                                      const LayerNormGradients& out, const Tensor& workspace) {
  for_float_type(dy.dtype(), [&]<class T>(T) {
    const Rows<T> rows(saved);
    const int64_t C = rows.C;
    T *const from = elements<T>(dy), *const to = elements<T>(out.dx);
    constexpr int kPack = pack_of<T>();
    const bool packs = C % kPack == 0 && packs_fit(rows.x, rows.weight, from, to);
    // The columns first, because dx may be dy.
    add_column_sums<2, T>(*this, {rows.R, C, packs}, WeightTerms<T>{rows, from},
                          {{elements<T>(out.dweight), elements<T>(out.dbias)}}, workspace);
    launch(*this, packs ? backward_rows_kernel<kPack, T> : backward_rows_kernel<1, T>,
           blocks_for(rows.R, kRowsOfBlock), kThreads, rows, from, to, out.write_dx == Write::add);
  });
}

}  // namespace zl::ZEROLAB_CUDA
