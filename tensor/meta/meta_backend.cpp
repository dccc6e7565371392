// The backend of dry runs: no memory and no arithmetic, but the workspace queries of a real device.
#include <stdexcept>

#include "tensor/backend.h"
#include "tensor/cuda/workspace.h"

namespace zl {
namespace {

class MetaBackend final : public Backend {
 public:
  // Null: a GPU, which this machine need not have.
  explicit MetaBackend(const Backend* stands_for) : stands_for_(stands_for) {}

  const char* name() const override { return "meta"; }
  bool holds_data() const override { return false; }
  bool host_addressable() const override { return false; }
  void* allocate(int64_t) override { return nullptr; }
  void release(void*, int64_t) noexcept override {}
  void poison(void*, int64_t) noexcept override {}
  int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const override {
    return stands_for_ ? stands_for_->workspace(kernel, dims, dtype)
                       : cuda_workspace(kernel, dims, dtype);
  }
  int64_t padded_columns(int64_t n) const override {
    return stands_for_ ? n : cuda_padded_columns(n);
  }
  void download(const Tensor& from, void*) override {
    throw std::logic_error(str("download of a tensor of shape ", to_string(from.shape()),
                               ": the meta backend holds no values; use kernel::read for scalars"));
  }

  void fill(double, const Tensor&) override {}
  void copy(const Tensor&, const Tensor&) override {}
  void upload(const void*, const Tensor&) override {}
  void normal(uint64_t, uint64_t, int64_t, double, double, const Tensor&) override {}
  void add(const Tensor&, const Tensor&, const Tensor&) override {}
  void accumulate(const Tensor&, const Tensor&) override {}
  void gelu(const Tensor&, const Tensor&) override {}
  void gelu_backward(const Tensor&, const Tensor&, const Tensor&, Write) override {}
  void matmul(Factor, Factor, const Tensor&, const Tensor&, Write, const Tensor&) override {}
  void sum_rows(const Tensor&, const Tensor&, const Tensor&) override {}
  void layer_norm(const LayerNormSaved&, const Tensor&, double, const Tensor&) override {}
  void layer_norm_backward(const LayerNormSaved&, const Tensor&, const LayerNormGradients&,
                           const Tensor&) override {}
  void attention(const AttentionSaved&, const Tensor&) override {}
  void attention_backward(const AttentionSaved&, const Tensor&, const Tensor&,
                          const Tensor&) override {}
  void embedding(const Tensor&, const Tensor&, const Tensor&) override {}
  void embedding_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {}
  void add_positions(const Tensor&, const Tensor&, const Tensor&) override {}
  void add_positions_backward(const Tensor&, const Tensor&, const Tensor&) override {}
  void cross_entropy(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {}
  void cross_entropy_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {
  }
  void update_parameters(const OptimizerUpdate&) override {}
  void sums_of_squares(std::span<const Tensor>, const Tensor&, const Tensor&) override {}
  void squares_of_blocks(const Tensor&, const Tensor&) override {}
  void ordered_sum(const OrderedSum&) override {}
  void move_bytes(const void*, void*, int64_t) override {}

 private:
  const Backend* stands_for_;
};

}  // namespace

Backend& meta_backend(DeviceKind stands_for) {
  static MetaBackend cpu(&cpu_backend()), cuda(nullptr);  // stateless
  return stands_for == DeviceKind::cuda ? cuda : cpu;
}

Backend& meta_reference_backend() {
  static MetaBackend reference(&reference_backend());
  return reference;
}

}  // namespace zl
