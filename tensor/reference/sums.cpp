// Sums whose order is part of the contract, so that all stages and backends have the same bits.
//
// The sum of squares of a gradient, for its norm, is a binary tree. Blocks of 1,024 elements from
// the start are its leaves, so a shard that begins at a block has the leaves of the full gradient;
// a tree does not change if zeros follow, so padding changes no bit. Within a block, element i is
// added to lane i mod 16, and the lanes are added pairwise. All in fp64.
//
// The sum over ranks is taken in the order of ranks, in fp32 (fp64 for f64, modulo 2^32 for i32).
#include <algorithm>
#include <bit>

#include "tensor/reference/kernel_call.h"

namespace zl {
namespace {

constexpr int64_t kBlock = kernel::kSquaresBlock;
constexpr int kLanes = 16;

template <class T>
double squares_of_block(std::span<const T> block) {
  double lanes[kLanes] = {};
  for (size_t i = 0; i < block.size(); ++i) {
    const double value = double(Compute<T>(block[i]));
    lanes[i % kLanes] += value * value;
  }
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

// The sum over `leaves` blocks from block `first` on, a power of 2. Blocks beyond the end are 0.
template <class T>
double squares_of_tree(std::span<const T> x, size_t first, size_t leaves) {
  const size_t begin = first * kBlock;
  if (begin >= x.size()) return 0;
  if (leaves == 1)
    return squares_of_block(x.subspan(begin, std::min(size_t(kBlock), x.size() - begin)));
  return squares_of_tree(x, first, leaves / 2) + squares_of_tree(x, first + leaves / 2, leaves / 2);
}

template <class T>
void add_in_order(const OrderedSum& what) {
  using Sum = OrderedSumType<T>;
  const auto value = [](char* buffer, int64_t i) { return Sum(reinterpret_cast<T*>(buffer)[i]); };
  const auto sum_at = [](char* buffer, int64_t i) -> Sum& {
    return reinterpret_cast<Sum*>(buffer)[i];
  };
  const auto divisor = Sum(what.added > 0 ? size_t(what.added) : what.buffers.size());
  for (int64_t i = what.begin; i < what.end; ++i) {
    Sum sum = what.continues ? sum_at(what.buffers[0], i) : value(what.buffers[0], i);
    for (char* const buffer : what.buffers.subspan(1)) sum += value(buffer, i);
    if (what.mean) sum /= divisor;
    for (char* const result : what.results)
      if (what.unfinished)
        sum_at(result, i) = sum;
      else
        reinterpret_cast<T*>(result)[i] = T(sum);
  }
}

}  // namespace

void kernel::sum_of_squares(const Tensor& x, const Tensor& out) { sums_of_squares({&x, 1}, out); }

void kernel::sums_of_squares(std::span<const Tensor> xs, const Tensor& out) {
  require_is("sums_of_squares", "out", out, int64_t(xs.size()), Dtype::f64);
  std::vector<int64_t> sizes;
  int64_t operations = 0, bytes = out.bytes();
  for (const Tensor& x : xs) {
    if (!is_float(x.dtype()) || x.dtype() != xs[0].dtype() || &x.memory() != &out.memory())
      refuse("sums_of_squares: ", name(x.dtype()), " beside ", name(xs[0].dtype()),
             "; all tensors must have one float type and be in the memory of out");
    sizes.push_back(x.numel());
    operations += 2 * x.numel();
    bytes += x.bytes();
  }
  out.memory().append_kernel("sums_of_squares", bytes, operations);
  out.backend().sums_of_squares(xs, out, workspace(KernelId::sums_of_squares, sizes, out));
}

void Backend::sums_of_squares(std::span<const Tensor> xs, const Tensor& out, const Tensor&) {
  for (size_t i = 0; i < xs.size(); ++i)
    for_float_type(xs[i].dtype(), [&]<class T>(T) {
      const std::span<const T> x = xs[i].data<T>();
      const size_t blocks = (x.size() + kBlock - 1) / kBlock;
      out.data<double>()[i] = squares_of_tree(x, 0, std::bit_ceil(blocks));
    });
}

void kernel::squares_of_blocks(const Tensor& x, const Tensor& out) {
  const int64_t blocks = (x.numel() + kSquaresBlock - 1) / kSquaresBlock;
  require_is("squares_of_blocks", "out", out, blocks, Dtype::f64);
  recorded("squares_of_blocks", out, 2 * x.numel(), {&x, &out}).squares_of_blocks(x, out);
}

void Backend::squares_of_blocks(const Tensor& x, const Tensor& out) {
  for_float_type(x.dtype(), [&]<class T>(T) {
    for (size_t b = 0; b < out.data<double>().size(); ++b)
      out.data<double>()[b] = squares_of_tree(std::span<const T>(x.data<T>()), b, 1);
  });
}

void Backend::ordered_sum(const OrderedSum& what) {
  // The sum and the mean of one value are the value, which is in place.
  if (what.buffers.size() < 2 && what.added < 2) return;
  if (what.dtype == Dtype::i32) return add_in_order<int32_t>(what);
  for_float_type(what.dtype, [&]<class T>(T) { add_in_order<T>(what); });
}

}  // namespace zl
