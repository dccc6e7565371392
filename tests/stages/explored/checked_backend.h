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
  void* allocate(int64_t bytes) override {
    void* const block = CpuBackend::allocate(bytes);
    if (block) ranks_.races().allocated(block, bytes);
    return block;
  }
  void release(void* block, int64_t bytes) noexcept override {
    ranks_.races().freed(ranks_.accessor(rank_, "release"), block, bytes);
    CpuBackend::release(block, bytes);
  }
  void poison(void* block, int64_t bytes) noexcept override {
    ranks_.races().access(ranks_.accessor(rank_, "allocation or release"), block, bytes, true);
    CpuBackend::poison(block, bytes);
  }
  void upload(const void* host, const Tensor& to) override {
    access("upload", {}, {&to});
    CpuBackend::upload(host, to);
  }
  void download(const Tensor& from, void* host) override {
    access("download", {&from}, {});
    CpuBackend::download(from, host);
  }
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override {
    access("normal", {}, {&out});
    CpuBackend::normal(seed, stream, first, mean, deviation, out);
  }
  void fill(double value, const Tensor& out) override {
    access("fill", {}, {&out});
    CpuBackend::fill(value, out);
  }
  void copy(const Tensor& from, const Tensor& to) override {
    access("copy", {&from}, {&to});
    CpuBackend::copy(from, to);
  }
  void add(const Tensor& a, const Tensor& b, const Tensor& y) override {
    access("add", {&a, &b}, {&y});
    CpuBackend::add(a, b, y);
  }
  void accumulate(const Tensor& from, const Tensor& into) override {
    access("accumulate", {&from}, {&into});
    CpuBackend::accumulate(from, into);
  }
  void gelu(const Tensor& x, const Tensor& y) override {
    access("gelu", {&x}, {&y});
    CpuBackend::gelu(x, y);
  }
  void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) override {
    access("gelu_backward", {&x, &dy}, {&dx});
    CpuBackend::gelu_backward(x, dy, dx, write);
  }
  void sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) override {
    access("sum_rows", {&x}, {&out, &workspace});
    CpuBackend::sum_rows(x, out, workspace);
  }
  void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
              const Tensor& workspace) override {
    access("matmul", {&a.tensor, &b.tensor, &bias}, {&out, &workspace});
    CpuBackend::matmul(a, b, bias, out, write, workspace);
  }
  void layer_norm(const LayerNormSaved& s, const Tensor& bias, double eps,
                  const Tensor& y) override {
    access("layer_norm", {&s.x, &s.weight, &bias}, {&s.mean, &s.rstd, &y});
    CpuBackend::layer_norm(s, bias, eps, y);
  }
  void layer_norm_backward(const LayerNormSaved& s, const Tensor& dy, const LayerNormGradients& out,
                           const Tensor& workspace) override {
    access("layer_norm_backward", {&s.x, &s.weight, &s.mean, &s.rstd, &dy},
           {&out.dx, &out.dweight, &out.dbias, &workspace});
    CpuBackend::layer_norm_backward(s, dy, out, workspace);
  }
  void attention(const AttentionSaved& s, const Tensor& workspace) override {
    access("attention", {&s.qkv}, {&s.y, &s.log_sum_exp, &workspace});
    CpuBackend::attention(s, workspace);
  }
  void attention_backward(const AttentionSaved& s, const Tensor& dy, const Tensor& dqkv,
                          const Tensor& workspace) override {
    access("attention_backward", {&s.qkv, &s.y, &s.log_sum_exp, &dy}, {&dqkv, &workspace});
    CpuBackend::attention_backward(s, dy, dqkv, workspace);
  }
  void embedding(const Tensor& ids, const Tensor& table, const Tensor& y) override {
    access("embedding", {&ids, &table}, {&y});
    CpuBackend::embedding(ids, table, y);
  }
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                          const Tensor& workspace) override {
    access("embedding_backward", {&ids, &dy}, {&dtable, &workspace});
    CpuBackend::embedding_backward(ids, dy, dtable, workspace);
  }
  void add_positions(const Tensor& x, const Tensor& table, const Tensor& y) override {
    access("add_positions", {&x, &table}, {&y});
    CpuBackend::add_positions(x, table, y);
  }
  void add_positions_backward(const Tensor& dy, const Tensor& dtable,
                              const Tensor& workspace) override {
    access("add_positions_backward", {&dy}, {&dtable, &workspace});
    CpuBackend::add_positions_backward(dy, dtable, workspace);
  }
  void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                     const Tensor& workspace) override {
    access("cross_entropy", {&logits, &targets}, {&loss, &workspace});
    CpuBackend::cross_entropy(logits, targets, loss, workspace);
  }
  void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& dloss,
                              const Tensor& dlogits) override {
    access("cross_entropy_backward", {&logits, &targets, &dloss}, {&dlogits});
    CpuBackend::cross_entropy_backward(logits, targets, dloss, dlogits);
  }
  void update_parameters(const OptimizerUpdate& u) override {
    access(zl::name(u.config.kind), {&u.gradient},
           {&u.parameter, &u.moment, &u.exp_avg_sq, &u.master});
    CpuBackend::update_parameters(u);
  }
  void sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                       const Tensor& workspace) override {
    for (const Tensor& x : xs) access("sums_of_squares", {&x}, {&out, &workspace});
    CpuBackend::sums_of_squares(xs, out, workspace);
  }
  void squares_of_blocks(const Tensor& x, const Tensor& out) override {
    access("squares_of_blocks", {&x}, {&out});
    CpuBackend::squares_of_blocks(x, out);
  }

 private:
  using Tensors = std::initializer_list<const Tensor*>;
  // A race fails the run at the rank's next call; the kernel runs all the same.
  void access(const char* kernel, Tensors reads, Tensors writes) {
    ranks_.kernel_is_checked(rank_);
    const Accessor by = ranks_.accessor(rank_, kernel);
    for (const Tensor* t : reads) ranks_.races().access(by, t->address(), t->bytes(), false);
    for (const Tensor* t : writes) ranks_.races().access(by, t->address(), t->bytes(), true);
  }

  ExploredRanks& ranks_;
  const int rank_;
};

}  // namespace zl::test
