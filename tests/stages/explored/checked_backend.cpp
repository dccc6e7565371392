#include "tests/stages/explored/checked_backend.h"

namespace zl::test {

// A race fails the run at the rank's next call; the kernel runs all the same.
void CheckedBackend::access(const char* kernel, Tensors reads, Tensors writes) {
  ranks_.kernel_is_checked(rank_);
  const Accessor by = ranks_.accessor(rank_, kernel);
  for (const Tensor* t : reads) ranks_.races().access(by, t->address(), t->bytes(), false);
  for (const Tensor* t : writes) ranks_.races().access(by, t->address(), t->bytes(), true);
}

void* CheckedBackend::allocate(int64_t bytes) {
  void* const block = CpuBackend::allocate(bytes);
  if (block) ranks_.races().allocated(block, bytes);
  return block;
}

void CheckedBackend::release(void* block, int64_t bytes) noexcept {
  ranks_.races().freed(ranks_.accessor(rank_, "release"), block, bytes);
  CpuBackend::release(block, bytes);
}

void CheckedBackend::poison(void* block, int64_t bytes) noexcept {
  ranks_.races().access(ranks_.accessor(rank_, "allocation or release"), block, bytes, true);
  CpuBackend::poison(block, bytes);
}

void CheckedBackend::upload(const void* host, const Tensor& to) {
  access("upload", {}, {&to});
  CpuBackend::upload(host, to);
}

void CheckedBackend::download(const Tensor& from, void* host) {
  access("download", {&from}, {});
  CpuBackend::download(from, host);
}

void CheckedBackend::normal(uint64_t seed, uint64_t stream, int64_t first, double mean,
                            double deviation, const Tensor& out) {
  access("normal", {}, {&out});
  CpuBackend::normal(seed, stream, first, mean, deviation, out);
}

void CheckedBackend::fill(double value, const Tensor& out) {
  access("fill", {}, {&out});
  CpuBackend::fill(value, out);
}

void CheckedBackend::copy(const Tensor& from, const Tensor& to) {
  access("copy", {&from}, {&to});
  CpuBackend::copy(from, to);
}

void CheckedBackend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  access("add", {&a, &b}, {&y});
  CpuBackend::add(a, b, y);
}

void CheckedBackend::accumulate(const Tensor& from, const Tensor& into) {
  access("accumulate", {&from}, {&into});
  CpuBackend::accumulate(from, into);
}

void CheckedBackend::divide(double divisor, const Tensor& x) {
  access("divide", {}, {&x});
  CpuBackend::divide(divisor, x);
}

void CheckedBackend::quantize(const Tensor& x, const Quantized& to) {
  access("quantize", {&x}, {&to.codes, &to.scales});
  CpuBackend::quantize(x, to);
}

void CheckedBackend::dequantize(const Quantized& from, const Tensor& x, Write write) {
  access("dequantize", {&from.codes, &from.scales}, {&x});
  CpuBackend::dequantize(from, x, write);
}

void CheckedBackend::gelu(const Tensor& x, const Tensor& y) {
  access("gelu", {&x}, {&y});
  CpuBackend::gelu(x, y);
}

void CheckedBackend::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                                   Write write) {
  access("gelu_backward", {&x, &dy}, {&dx});
  CpuBackend::gelu_backward(x, dy, dx, write);
}

void CheckedBackend::sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) {
  access("sum_rows", {&x}, {&out, &workspace});
  CpuBackend::sum_rows(x, out, workspace);
}

void CheckedBackend::matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
                            const Tensor& workspace) {
  access("matmul", {&a.tensor, &b.tensor, &bias}, {&out, &workspace});
  CpuBackend::matmul(a, b, bias, out, write, workspace);
}

void CheckedBackend::layer_norm(const LayerNormSaved& s, const Tensor& bias, double eps,
                                const Tensor& y) {
  access("layer_norm", {&s.x, &s.weight, &bias}, {&s.mean, &s.rstd, &y});
  CpuBackend::layer_norm(s, bias, eps, y);
}

void CheckedBackend::layer_norm_backward(const LayerNormSaved& s, const Tensor& dy,
                                         const LayerNormGradients& out, const Tensor& workspace) {
  access("layer_norm_backward", {&s.x, &s.weight, &s.mean, &s.rstd, &dy},
         {&out.dx, &out.dweight, &out.dbias, &workspace});
  CpuBackend::layer_norm_backward(s, dy, out, workspace);
}

void CheckedBackend::attention(const AttentionSaved& s, const Tensor& workspace) {
  access("attention", {&s.qkv}, {&s.y, &s.log_sum_exp, &workspace});
  CpuBackend::attention(s, workspace);
}

void CheckedBackend::attention_backward(const AttentionSaved& s, const Tensor& dy,
                                        const Tensor& dqkv, const Tensor& workspace) {
  access("attention_backward", {&s.qkv, &s.y, &s.log_sum_exp, &dy}, {&dqkv, &workspace});
  CpuBackend::attention_backward(s, dy, dqkv, workspace);
}

void CheckedBackend::embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  access("embedding", {&ids, &table}, {&y});
  CpuBackend::embedding(ids, table, y);
}

void CheckedBackend::embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                        const Tensor& workspace) {
  access("embedding_backward", {&ids, &dy}, {&dtable, &workspace});
  CpuBackend::embedding_backward(ids, dy, dtable, workspace);
}

void CheckedBackend::add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  access("add_positions", {&x, &table}, {&y});
  CpuBackend::add_positions(x, table, y);
}

void CheckedBackend::add_positions_backward(const Tensor& dy, const Tensor& dtable,
                                            const Tensor& workspace) {
  access("add_positions_backward", {&dy}, {&dtable, &workspace});
  CpuBackend::add_positions_backward(dy, dtable, workspace);
}

void CheckedBackend::cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                                   const Tensor& workspace) {
  access("cross_entropy", {&logits, &targets}, {&loss, &workspace});
  CpuBackend::cross_entropy(logits, targets, loss, workspace);
}

void CheckedBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                            const Tensor& dloss, const Tensor& dlogits) {
  access("cross_entropy_backward", {&logits, &targets, &dloss}, {&dlogits});
  CpuBackend::cross_entropy_backward(logits, targets, dloss, dlogits);
}

void CheckedBackend::adamw(const AdamWUpdate& u) {
  access("adamw", {&u.gradient}, {&u.parameter, &u.exp_avg, &u.exp_avg_sq, &u.master});
  CpuBackend::adamw(u);
}

void CheckedBackend::sgd(const SgdUpdate& u) {
  access("sgd", {&u.gradient}, {&u.parameter, &u.momentum_buffer, &u.master});
  CpuBackend::sgd(u);
}

void CheckedBackend::sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                                     const Tensor& workspace) {
  for (const Tensor& x : xs) access("sums_of_squares", {&x}, {&out, &workspace});
  CpuBackend::sums_of_squares(xs, out, workspace);
}

void CheckedBackend::squares_of_blocks(const Tensor& x, const Tensor& out) {
  access("squares_of_blocks", {&x}, {&out});
  CpuBackend::squares_of_blocks(x, out);
}

}  // namespace zl::test
