// The CPU's kernels, watched: how many blocks of memory they took from the system, and how long
// each took.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "tensor/cpu/cpu_backend.h"

namespace zl::cli {

// Counts what Memory could not hand out again. A kernel that it does not know runs all the same.
class CountingBackend : public CpuBackend {
 public:
  // Ranks may share a count.
  explicit CountingBackend(std::atomic<int64_t>& allocations) : allocations_(allocations) {}
  void* allocate(int64_t bytes) override;

 private:
  std::atomic<int64_t>& allocations_;
};

// What one kernel did, in all its calls.
struct KernelTotal {
  std::string kernel;
  int64_t calls = 0, operations = 0, bytes = 0;
  double seconds = 0;
};

// Times each call of a kernel with the steady clock. For one rank: on its own thread.
class TimingBackend : public CountingBackend {
 public:
  using CountingBackend::CountingBackend;

  void begin() { totals_ = {}, timing_ = true, uncalled_ = 0; }
  void end() { timing_ = false; }
  // To be called at each kernel event: the next call is that kernel's.
  void announce(const Event& kernel);
  // Since begin().
  double seconds_in_kernels() const;        // [s]
  std::vector<KernelTotal> totals() const;  // of those that were called, the longest first
  int64_t uncalled() const {
    return uncalled_;
  }  // kernel events of which this class has timed nothing

  // [s] What the clock adds to a call, outside of the kernel's own time.
  static double clock_seconds();

  void fill(double value, const Tensor& out) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void upload(const void* host, const Tensor& to) override;
  void download(const Tensor& from, void* host) override;
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override;
  void add(const Tensor& a, const Tensor& b, const Tensor& y) override;
  void accumulate(const Tensor& from, const Tensor& into) override;
  void gelu(const Tensor& x, const Tensor& y) override;
  void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) override;
  void matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
              const Tensor& workspace) override;
  void sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) override;
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
  void sum_of_squares(const Tensor& x, const Tensor& out, const Tensor& workspace) override;
  void ordered_sum(const OrderedSum& sum) override;
  void move_bytes(const void* from, void* to, int64_t bytes) override;

 private:
  enum class Slot {
    fill,
    copy,
    upload,
    download,
    normal,
    add,
    accumulate,
    gelu,
    gelu_backward,
    matmul,
    matmul_input,
    matmul_weight,
    sum_rows,
    layer_norm,
    layer_norm_backward,
    attention,
    attention_backward,
    embedding,
    embedding_backward,
    add_positions,
    add_positions_backward,
    cross_entropy,
    cross_entropy_backward,
    adamw,
    sgd,
    sum_of_squares,
    ordered_sum,
    move_bytes,
    count
  };
  static const char* name(Slot slot);

  struct Total {
    int64_t calls = 0, operations = 0, bytes = 0, nanoseconds = 0;
  };
  // One call, from here to the end of the block.
  class Call;

  std::array<Total, size_t(Slot::count)> totals_{};
  bool timing_ = false, announced_ = false;
  int64_t operations_ = 0, bytes_ = 0;  // announced
  int64_t uncalled_ = 0;
};

}  // namespace zl::cli
