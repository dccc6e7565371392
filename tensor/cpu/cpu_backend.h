// The kernels of tensor/reference/, fast; what is not overridden here is the reference's. A file
// defines the kernels of one family; tensor/cuda/ has files of the same names.
#pragma once

#include "tensor/backend.h"

namespace zl {

class CpuBackend : public Backend {
 public:
  const char* name() const override { return "cpu"; }

  // cpu_backend.cpp
  int64_t segment() const override;
  void* allocate(int64_t bytes) override;
  void release(void* block, int64_t bytes) noexcept override;
  int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const override;

  // random.cpp
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override;

  // elementwise.cpp
  void fill(double value, const Tensor& out) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void add(const Tensor& a, const Tensor& b, const Tensor& y) override;
  void accumulate(const Tensor& from, const Tensor& into) override;
  void gelu(const Tensor& x, const Tensor& y) override;
  void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) override;
  void sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) override;

  // matmul.cpp
  void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
              const Tensor& workspace) override;

  // layer_norm.cpp
  void layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                  const Tensor& y) override;
  void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                           const LayerNormGradients& out, const Tensor& workspace) override;

  // attention.cpp
  void attention(const AttentionSaved& saved, const Tensor& workspace) override;
  void attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv,
                          const Tensor& workspace) override;

  // embedding.cpp
  void embedding(const Tensor& ids, const Tensor& table, const Tensor& y) override;
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                          const Tensor& workspace) override;
  void add_positions(const Tensor& x, const Tensor& table, const Tensor& y) override;
  void add_positions_backward(const Tensor& dy, const Tensor& dtable,
                              const Tensor& workspace) override;

  // cross_entropy.cpp
  void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                     const Tensor& workspace) override;
  void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                              const Tensor& dlogits) override;

  // optimizer.cpp
  void update_parameters(const OptimizerUpdate& update) override;

  // norm.cpp
  void sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                       const Tensor& workspace) override;
  void squares_of_blocks(const Tensor& x, const Tensor& out) override;

  // ordered_sum.cpp
  void ordered_sum(const OrderedSum& sum) override;
};

// [B] The workspace of kernels: matmul.cpp, attention.cpp.
int64_t matmul_workspace(int64_t M, int64_t N, int64_t K, Dtype dtype);
int64_t attention_workspace(std::span<const int64_t> dims, Dtype dtype, bool backward);

// The instruction set for which the kernels of this folder were compiled, such as "x86-64-v3".
const char* cpu_architecture();

}  // namespace zl
