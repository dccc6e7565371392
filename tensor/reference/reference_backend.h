// The specification: every kernel in its textbook form. A file begins with the formulas and their
// source, and computes them by plain loops and matrix products. tensor/cpu computes the same fast,
// tensor/cuda on a GPU; the tests compare both with this backend.
//
// Optimizers, sums of squares, ordered sums, casts, quantisation and embedding_backward have the
// same bits in all three. The others agree within the rounding of their sums.
//
// Reading order: the files below, from top to bottom.
#pragma once

#include "tensor/backend.h"

namespace zl {

class ReferenceBackend : public Backend {
 public:
  const char* name() const override { return "reference"; }

  // elementwise.cpp: what a storage type is
  void fill(double value, const Tensor& out) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override;
  void add(const Tensor& a, const Tensor& b, const Tensor& y) override;
  void accumulate(const Tensor& from, const Tensor& into) override;
  void divide(double divisor, const Tensor& x) override;

  // gelu.cpp
  void gelu(const Tensor& x, const Tensor& y) override;
  void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) override;

  // matmul.cpp, with product.h
  void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
              const Tensor& workspace) override;
  void sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) override;

  // embedding.cpp
  void embedding(const Tensor& ids, const Tensor& table, const Tensor& y) override;
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                          const Tensor& workspace) override;
  void add_positions(const Tensor& x, const Tensor& table, const Tensor& y) override;
  void add_positions_backward(const Tensor& dy, const Tensor& dtable,
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

  // cross_entropy.cpp
  void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                     const Tensor& workspace) override;
  void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                              const Tensor& dlogits) override;

  // optimizer.cpp, with tensor/optimizer_math.h
  void adamw(const AdamWUpdate& update) override;
  void sgd(const SgdUpdate& update) override;

  // sums.cpp: sums whose order is part of the contract
  void sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                       const Tensor& workspace) override;
  void squares_of_blocks(const Tensor& x, const Tensor& out) override;
  void ordered_sum(const OrderedSum& sum) override;

  // quantize.cpp
  void quantize(const Tensor& x, const Quantized& to) override;
  void dequantize(const Quantized& from, const Tensor& x, Write write) override;

  // reference_backend.cpp: memory
  int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const override;
  void* allocate(int64_t bytes) override;
  void release(void* segment, int64_t bytes) noexcept override;
  void poison(void* block, int64_t bytes) noexcept override;
  void upload(const void* host, const Tensor& to) override;
  void download(const Tensor& from, void* host) override;
  void move_bytes(const void* from, void* to, int64_t bytes) override;
};

Backend& reference_backend();  // stateless; never destroyed

}  // namespace zl
