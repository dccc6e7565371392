// Kernels on one NVIDIA GPU. Each .cu file of kernels defines the members of one family; cpu/ has a
// file of the same name, its plain reference.
//
// A backend belongs to one rank: it has two streams of its own, one for each lane, each in program
// order, one behind the other where `follow` says so, its own pool of memory and its own handle of
// cuBLAS. Deterministic by construction: no floating-point atomics, every sum in one fixed order.
#pragma once

#include <map>
#include <memory>

#include "tensor/platform/gpus.h"

#ifdef ZEROLAB_CUDA_ON_CPU  // tests that run these kernels on the CPU have them beside the true
                            // ones
#define ZEROLAB_CUDA cuda_on_cpu
#else
#define ZEROLAB_CUDA cuda
#endif

struct CUstream_st;
struct cublasContext;

namespace zl::ZEROLAB_CUDA {

class DevicePool;

class CudaBackend final : public Backend {
 public:
  // On GPU number `device`, on the thread of its rank. Throws std::runtime_error if that GPU cannot
  // be used.
  explicit CudaBackend(int device, GpuOptions options = {});
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  const char* name() const override { return "cuda"; }
  bool host_addressable() const override { return false; }
  CUstream_st* stream(Stream lane = Stream::compute) const { return streams_[size_t(lane)]; }
  int device() const { return device_; }

  // cuda_backend.cu
  void* allocate(int64_t bytes) override;
  void release(void* block, int64_t bytes) noexcept override;
  bool keeps_blocks() const override { return true; }
  int64_t driver_calls() const override;
  void poison(void* block, int64_t bytes) noexcept override;
  int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const override;
  void upload(const void* host, const Tensor& to) override;
  void download(const Tensor& from, void* host) override;

  // streams.cu
  std::shared_ptr<const StreamEvent> record_event(Stream lane) override;
  void wait_event(Stream lane, const StreamEvent* point) override;
  void synchronize() override;
  bool event_done(const StreamEvent* point) override;
  void* native_stream(Stream lane) override { return stream(lane); }
  double seconds(const std::function<void()>& work) override;
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
  void adamw(const AdamWUpdate& update) override;
  void sgd(const SgdUpdate& update) override;

  // norm.cu
  void sum_of_squares(const Tensor& x, const Tensor& out, const Tensor& workspace) override;

 private:
  void add_bias(const Tensor& bias, const Tensor& y);  // (N), (M, N); elementwise.cu
  bool reaches(const void* address);
  void give_back() noexcept;  // all that this backend has of the driver

  int device_;
  GpuOptions options_;
  CUstream_st* streams_[2] = {};
  cublasContext* blas_ = nullptr;
  std::unique_ptr<DevicePool> pool_;
  std::map<int, bool> peers_;  // whether this GPU reaches that one, once asked
  char* staging_ = nullptr;    // pinned memory of the host, made when a buffer lies on a GPU that
                               // this one cannot reach
};

// What tensor/platform/gpus.h promises: gpus.cu, profiler_ranges.cu.
Gpus find_gpus(int open);
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options = {});
std::unique_ptr<Backend> make_pinned_backend();
void annotate_for_profilers(EventStream& events);

}  // namespace zl::ZEROLAB_CUDA
