// The CPU's kernels, which report to Races what they read and write.
//
// Allocation and release count as writes of the block. Each block has its own segment, so that an
// access to a block that was released is found, and a race is told by its place in the block.
#pragma once

#include <initializer_list>

#include "tensor/cpu/cpu_backend.h"
#include "tests/stages/explored/explored_ranks.h"

namespace zl::test {

class CheckedBackend final : public CpuBackend {
 public:
  CheckedBackend(ExploredRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}

  int64_t segment() const override { return 0; }
  void* allocate(int64_t bytes) override;
  void release(void* block, int64_t bytes) noexcept override;
  void poison(void* block, int64_t bytes) noexcept override;
  void upload(const void* host, const Tensor& to) override;
  void download(const Tensor& from, void* host) override;
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override;
  void fill(double value, const Tensor& out) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void add(const Tensor& a, const Tensor& b, const Tensor& y) override;
  void accumulate(const Tensor& from, const Tensor& into) override;
  void divide(double divisor, const Tensor& x) override;
  void gelu(const Tensor& x, const Tensor& y) override;
  void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) override;
  void sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) override;
  void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
              const Tensor& workspace) override;
  void layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                  const Tensor& y) override;
  void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                           const LayerNormGradients& out, const Tensor& workspace) override;
  void attention(const AttentionSaved& saved, const Tensor& workspace) override;
  void attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv,
                          const Tensor& workspace) override;
  void embedding(const Tensor& ids, const Tensor& table, const Tensor& y) override;
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                          const Tensor& workspace) override;
  void add_positions(const Tensor& x, const Tensor& table, const Tensor& y) override;
  void add_positions_backward(const Tensor& dy, const Tensor& dtable,
                              const Tensor& workspace) override;
  void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                     const Tensor& workspace) override;
  void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                              const Tensor& dlogits) override;
  void adamw(const AdamWUpdate& update) override;
  void sgd(const SgdUpdate& update) override;
  void sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                       const Tensor& workspace) override;
  void squares_of_blocks(const Tensor& x, const Tensor& out) override;
  void quantize(const Tensor& x, const Quantized& to) override;
  void dequantize(const Quantized& from, const Tensor& x, Write write) override;

 private:
  using Tensors = std::initializer_list<const Tensor*>;
  void access(const char* kernel, Tensors reads, Tensors writes);

  ExploredRanks& ranks_;
  const int rank_;
};

}  // namespace zl::test
