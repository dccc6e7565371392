// Kernels on one NVIDIA GPU. Each .cu file of kernels defines one family; the file of the same name
// in tensor/cpu/ is its plain reference.
//
// A backend belongs to one rank. It owns two CUDA streams and a cuBLAS handle.
// wait_event is the only order between the streams. Results are deterministic: no floating-point
// atomics, and every sum in one fixed order.
#pragma once

#include <map>
#include <memory>

#include "tensor/platform/gpus.h"
#include "tensor/platform/quantize.h"

#ifdef ZEROLAB_CUDA_ON_CPU  // a second copy, which the tests run on the CPU
#define ZEROLAB_CUDA cuda_on_cpu
#else
#define ZEROLAB_CUDA cuda
#endif

struct CUstream_st;

namespace zl::ZEROLAB_CUDA {

class Blas;
class PinnedBlocks;

class CudaBackend final : public Backend, public QuantizeKernels {
 public:
  // Call on the rank's own thread. Throws std::runtime_error if GPU `device` cannot be used.
  explicit CudaBackend(int device, GpuOptions options = {});
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  const char* name() const override { return "cuda"; }
  bool host_addressable() const override { return false; }
  CUstream_st* stream(Stream s = Stream::compute) const { return streams_[size_t(s)]; }

  // cuda_backend.cu
  int64_t segment() const override { return options_.segment; }
  void* allocate(int64_t bytes) override;
  void release(void* block, int64_t bytes) noexcept override;
  void poison(void* block, int64_t bytes) noexcept override;
  int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const override;
  int64_t padded_columns(int64_t n) const override;
  void upload(const void* host, const Tensor& to) override;
  void download(const Tensor& from, void* host) override;
  std::function<const void*()> start_download(const Tensor& from) override;
  int64_t host_waits() const override { return host_waits_; }

  // streams.cu
  std::shared_ptr<const StreamEvent> record_event(Stream s) override;
  void wait_event(Stream s, const StreamEvent* event) override;
  void synchronize() override;
  void select_for_this_thread() override;
  void wait_on_host(const StreamEvent* event);
  void* native_stream(Stream s) override { return stream(s); }
  std::function<double()> timing(Stream s, const std::function<void()>& work) override;
  void move_bytes(const void* from, void* to, int64_t bytes) override;

  // ordered_sum.cu
  void ordered_sum(const OrderedSum& sum) override;

  // random.cu
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override;

  // elementwise.cu
  void fill(double value, const Tensor& out) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void add(const Tensor& a, const Tensor& b, const Tensor& y) override;
  void accumulate(const Tensor& from, const Tensor& into) override;
  void divide(double divisor, const Tensor& x) override;
  void gelu(const Tensor& x, const Tensor& y) override;
  void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) override;
  void sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) override;

  // matmul.cu
  void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
              const Tensor& workspace) override;

  // layer_norm.cu
  void layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                  const Tensor& y) override;
  void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                           const LayerNormGradients& out, const Tensor& workspace) override;

  // attention.cu
  void attention(const AttentionSaved& saved, const Tensor& workspace) override;
  void attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv,
                          const Tensor& workspace) override;

  // embedding.cu
  void embedding(const Tensor& ids, const Tensor& table, const Tensor& y) override;
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                          const Tensor& workspace) override;
  void add_positions(const Tensor& x, const Tensor& table, const Tensor& y) override;
  void add_positions_backward(const Tensor& dy, const Tensor& dtable,
                              const Tensor& workspace) override;

  // cross_entropy.cu
  void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                     const Tensor& workspace) override;
  void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                              const Tensor& dlogits) override;

  // optimizer.cu
  void update_parameters(const OptimizerUpdate& update) override;

  // quantize.cu
  void quantize(const Tensor& x, const Quantized& to) override;
  void dequantize(const Quantized& from, const Tensor& x, Write write) override;

  // norm.cu
  void sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                       const Tensor& workspace) override;
  void squares_of_blocks(const Tensor& x, const Tensor& out) override;

 private:
  void add_bias(const Tensor& bias, const Tensor& y);  // (N), (M, N); elementwise.cu
  void set_padding(int64_t columns, const Tensor& y);  // to -infinity; elementwise.cu
  // Enables and tests access at the first call; returns whether it works. peers.cu
  bool enable_access(int gpu);
  void release_all() noexcept;  // everything that this backend has allocated from the driver

  int device_;
  GpuOptions options_;
  CUstream_st* streams_[2] = {};
  std::shared_ptr<Blas> blas_;
  std::unique_ptr<PinnedBlocks> pinned_;
  int64_t host_waits_ = 0;
  std::map<int, bool> peers_;  // whether this GPU can access that one; filled at first use
  char* staging_ = nullptr;    // memory of this GPU, for buffers on GPUs that it cannot access
};

// matmul.cu. A handle of cuBLAS, and what cuBLASLt has chosen.
std::shared_ptr<Blas> make_blas(CUstream_st* stream);

// ordered_sum.cu. Loads the kernels that are enqueued behind NCCL operations, so that their first
// launch does not wait for one.
void load_ordered_sum();

// peers.cu. The GPU that has this address; -1: memory of the host.
int gpu_of(const void* address);

// attention.cu. Loads the kernels for one type of elements onto the current GPU, which takes
// seconds from PTX. Heads of other sizes (not a multiple of 8, or above 128) use kernels that are
// loaded at their first launch.
void load_attention_kernels(Dtype dtype, bool tf32);

// The functions of tensor/platform/gpus.h: gpus.cu, profiler_ranges.cu.
Gpus find_gpus(int open);
void select_gpu(int index);
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options = {});
std::unique_ptr<Backend> make_pinned_backend();
void annotate_for_profilers(EventStream& events);

}  // namespace zl::ZEROLAB_CUDA
