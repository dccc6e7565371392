// The backend of dry runs: no memory, no arithmetic, but the workspace questions of the device it stands for.
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "tensor/backend.h"

namespace zl {
namespace {

class MetaBackend final : public Backend {
 public:
  explicit MetaBackend(const Backend& stands_for) : stands_for_(stands_for) {}

  const char* name() const override { return "meta"; }
  bool holds_data() const override { return false; }
  bool host_addressable() const override { return false; }
  void* allocate(int64_t) override { return nullptr; }
  void release(void*, int64_t) noexcept override {}
  int64_t workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const override {
    return stands_for_.workspace(kernel, dims, dtype);
  }
  void download(const Tensor& from, void*) override {
    throw std::logic_error(str("the values of a tensor of shape ", to_string(from.shape()),
                               " on meta were asked for, but meta holds none; kernel::read answers for scalars"));
  }

  void fill(double, const Tensor&) override {}
  void copy(const Tensor&, const Tensor&) override {}
  void upload(const void*, const Tensor&) override {}
  void normal(uint64_t, uint64_t, int64_t, double, double, const Tensor&) override {}
  void add(const Tensor&, const Tensor&, const Tensor&) override {}
  void accumulate(const Tensor&, const Tensor&) override {}
  void gelu(const Tensor&, const Tensor&) override {}
  void gelu_backward(const Tensor&, const Tensor&, const Tensor&, Write) override {}
  void matmul(Factor, Factor, const Tensor&, Write, const Tensor&) override {}
  void add_bias(const Tensor&, const Tensor&) override {}
  void sum_rows(const Tensor&, const Tensor&, const Tensor&) override {}
  void layer_norm(const LayerNormSaved&, const Tensor&, double, const Tensor&) override {}
  void layer_norm_backward(const LayerNormSaved&, const Tensor&, const LayerNormGradients&, const Tensor&) override {}
  void attention(const AttentionSaved&, const Tensor&) override {}
  void attention_backward(const AttentionSaved&, const Tensor&, const Tensor&, const Tensor&) override {}
  void embedding(const Tensor&, const Tensor&, const Tensor&) override {}
  void embedding_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {}
  void add_positions(const Tensor&, const Tensor&, const Tensor&) override {}
  void add_positions_backward(const Tensor&, const Tensor&, const Tensor&) override {}
  void cross_entropy(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {}
  void cross_entropy_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {}
  void adamw(const AdamWUpdate&) override {}
  void sgd(const SgdUpdate&) override {}
  void sum_of_squares(const Tensor&, const Tensor&, const Tensor&) override {}

 private:
  const Backend& stands_for_;
};

}  // namespace

Backend& meta_backend(const Backend& stands_for) {
  // Ranks are threads and may ask at the same time. Entries stay until the program ends: a Memory refers to them.
  static std::mutex mutex;
  static std::map<const Backend*, std::unique_ptr<MetaBackend>> backends;
  const std::lock_guard lock(mutex);
  auto& backend = backends[&stands_for];
  if (!backend) backend = std::make_unique<MetaBackend>(stands_for);
  return *backend;
}

}  // namespace zl
