// Sums over ranks, in rank order. One thread adds all ranks' values of an element, so the result
// does not depend on chunks, on the grid or on the rank that computes it. The bits are those of
// cpu/ordered_sum.cpp, except for the payload of a NaN.
#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// [n] Of 64 ranks and a start. Their addresses are an argument of the kernel.
constexpr int kMostBuffers = 65;
// [B] Memory of this GPU, for buffers that it cannot access.
constexpr int64_t kStaging = int64_t(4) << 20;

struct Addresses {
  int count = 0;
  char* of[kMostBuffers] = {};

  template <class T>
  __device__ T* as(int rank) const {
    return reinterpret_cast<T*>(of[rank]);
  }
};

Addresses addresses(std::span<char* const> buffers) {
  require(buffers.size() <= size_t(kMostBuffers), "ordered_sum: ", buffers.size(),
          " buffers; the limit is ", kMostBuffers);
  Addresses all{int(buffers.size()), {}};
  std::transform(buffers.begin(), buffers.end(), all.of,
                 [](char* buffer) { return device_address(buffer); });
  return all;
}

struct Range {
  int64_t begin, end;
  int64_t divisor;  // 1 for a sum
  bool continues, unfinished;
};

// results may be buffers: the thread of an element reads all buffers before it writes.
template <class T>
__global__ void ordered_sum_kernel(Range range, Addresses buffers, Addresses results) {
  using Sum = OrderedSumType<T>;
  const int64_t i = range.begin + first_element();
  if (i >= range.end) return;
  Sum sum = range.continues ? buffers.as<Sum>(0)[i] : Sum(buffers.as<T>(0)[i]);
  for (int r = 1; r < buffers.count; ++r) sum += Sum(buffers.as<T>(r)[i]);
  if (range.divisor > 1) sum /= Sum(range.divisor);
  for (int r = 0; r < results.count; ++r)
    if (range.unfinished)
      results.as<Sum>(r)[i] = sum;
    else
      results.as<T>(r)[i] = T(sum);
}

void add_in_order(CUstream_st* stream, const OrderedSum& what) {
  const int64_t values = what.added > 0 ? what.added : int64_t(what.buffers.size());
  const auto run = [&](auto type) {
    launch_on(stream, ordered_sum_kernel<decltype(type)>, blocks_for(what.end - what.begin),
              kThreads,
              Range{what.begin, what.end, what.mean ? values : 1, what.continues, what.unfinished},
              addresses(what.buffers), addresses(what.results));
  };
  if (what.dtype == Dtype::i32)
    run(int32_t{});
  else
    for_float_type(what.dtype, run);
}

}  // namespace

void load_ordered_sum() {
  load_kernel(ordered_sum_kernel<float>);
  load_kernel(ordered_sum_kernel<bf16>);
  load_kernel(ordered_sum_kernel<f16>);
  load_kernel(ordered_sum_kernel<double>);
  load_kernel(ordered_sum_kernel<int32_t>);
}

// A buffer that this GPU cannot access is copied to it first, piece by piece.
void CudaBackend::ordered_sum(const OrderedSum& what) {
  if ((what.buffers.size() < 2 && what.added < 2) || what.begin >= what.end)
    return;  // the sum and the mean of one value are the value, which is in place
  require(what.dtype != Dtype::i32 || !what.mean,
          "ordered_sum: the mean of integers may not be an integer");
  CUstream_st* const communication = stream(Stream::communication);
  std::vector<bool> far;
  const auto reaches = [this](char* buffer) {
    const int gpu = gpu_of(buffer);
    return gpu < 0 || enable_access(gpu);
  };
  for (char* buffer : what.buffers) far.push_back(!reaches(buffer));
  const bool near = std::none_of(far.begin(), far.end(), [](bool one) { return one; }) &&
                    std::all_of(what.results.begin(), what.results.end(), reaches);
  if (near) return add_in_order(communication, what);
  require(!what.continues && !what.unfinished, "ordered_sum: a part of a sum is on another GPU");
  if (!staging_) {
    void* block = nullptr;
    require_cuda(cudaMalloc(&block, size_t(kStaging)),
                 "cannot allocate memory for buffers of another GPU");
    staging_ = static_cast<char*>(block);
  }
  const int64_t size = size_of(what.dtype), slots = int64_t(what.buffers.size()) + 1,
                slot = kStaging / slots / 256 * 256;
  for (int64_t begin = what.begin; begin < what.end; begin += slot / size) {
    const int64_t n = std::min(slot / size, what.end - begin);
    std::vector<char*> buffers;
    for (size_t r = 0; r < what.buffers.size(); ++r) {
      char* const piece = what.buffers[r] + begin * size;
      buffers.push_back(far[r] ? staging_ + int64_t(r + 1) * slot : piece);
      if (far[r]) move_bytes(piece, buffers.back(), n * size);
    }
    char* const sum = staging_;
    add_in_order(communication,
                 {buffers, std::span(&sum, 1), 0, n, what.dtype, what.mean, what.added});
    for (char* result : what.results) move_bytes(sum, result + begin * size, n * size);
  }
}

}  // namespace zl::ZEROLAB_CUDA
