// One thread per element adds it over all ranks, in rank order: so no result depends on chunks, on the grid or on who adds.
#include "tensor/cuda/reduce.h"

#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

template <class T>
struct SumOf {
  using type = Compute<T>;
};
template <>
struct SumOf<int32_t> {
  using type = uint32_t;
};  // wraps around instead of being undefined

struct Addresses {
  int count = 0;
  char* of[kMostRanks] = {};

  explicit Addresses(std::span<char* const> buffers) : count(int(buffers.size())) {
    require(buffers.size() <= size_t(kMostRanks), "reduce_on_device: ", buffers.size(), " buffers, but at most ", kMostRanks,
            " can be added");
    std::copy(buffers.begin(), buffers.end(), of);
  }
  template <class T>
  __device__ T* as(int rank) const {
    return reinterpret_cast<T*>(of[rank]);
  }
};

struct Range {
  int64_t begin, end;
  bool mean;
};

// Reads an element of every buffer before it writes any, and nobody else touches that element: results may be buffers.
template <class T>
__global__ void reduce_kernel(Range range, Addresses buffers, Addresses results) {
  using Sum = typename SumOf<T>::type;
  const int64_t i = range.begin + first_element();
  if (i >= range.end) return;
  Sum sum = Sum(buffers.as<T>(0)[i]);
  for (int r = 1; r < buffers.count; ++r) sum += Sum(buffers.as<T>(r)[i]);
  if (range.mean) sum /= Sum(buffers.count);
  for (int r = 0; r < results.count; ++r) results.as<T>(r)[i] = T(sum);
}

}  // namespace

void reduce_on_device(CudaBackend& backend, const DeviceReduction& what) {
  if (what.buffers.size() < 2) return;  // the sum and the mean of one are itself, and it is in place
  const int64_t n = what.end - what.begin;
  const Range range{what.begin, what.end, what.mean};
  const Addresses buffers(what.buffers), results(what.results);
  const auto run = [&](auto type) {
    launch(backend, reduce_kernel<decltype(type)>, blocks_for(n), kThreads, range, buffers, results);
  };
  require(what.dtype != Dtype::i32 || !what.mean, "reduce_on_device: the mean of integers is not one");
  if (what.dtype == Dtype::i32) run(int32_t{});
  else for_float_type(what.dtype, run);
}

}  // namespace zl::ZEROLAB_CUDA
