// Copies between tensors in any memories, which are counted as moves, and transfers between the
// host and tensors on any device.
#include <algorithm>
#include <utility>

#include "tensor/kernels.h"

namespace zl::kernel {
namespace {

bool is_model_state(const Tensor& t) {
  return t.use() != MemoryUse::workspace && t.use() != MemoryUse::communication;
}

// Counts the move of `from` to the memory of `to`, if it is one of model state.
void count_move(const Tensor& from, const Tensor& to) {
  if (from.memory().pool() == to.memory().pool()) return;
  if (!is_model_state(from) && !is_model_state(to)) return;
  const Pool into = to.memory().pool();
  const Move move = into == Pool::disk                   ? Move::disk_write
                    : from.memory().pool() == Pool::disk ? Move::disk_read
                    : into == Pool::device               ? Move::host_to_device
                                                         : Move::device_to_host;
  to.memory().events().move(move, from.bytes());
}

// Only the disk's backend can copy from and to the disk, and only the GPU's between the GPU and the
// host.
Backend& copying_backend(const Tensor& from, const Tensor& to) {
  if (to.memory().pool() == Pool::disk) return to.backend();
  const bool disk = from.memory().pool() == Pool::disk;
  return disk || !from.backend().host_addressable() ? from.backend() : to.backend();
}

void transfer(const Tensor& from, const Tensor& to) {
  to.memory().append_kernel(&from.memory() != &to.memory() ? "transfer" : "copy",
                            from.bytes() + to.bytes());
  if (from.numel() > 0) copying_backend(from, to).copy(from, to);  // nothing has no address on disk
}

// A copy of `from` in the memory of `to`, in workspace. The type stays.
Tensor copy_to_memory_of(const Tensor& to, const Tensor& from) {
  const Tensor t = Tensor::empty(to.memory(), MemoryUse::workspace, from.shape(), from.dtype());
  transfer(from, t);
  count_move(from, to);
  return t;
}

}  // namespace

void copy(const Tensor& from, const Tensor& to) {
  require(from.numel() == to.numel(), "copy: ", in_words(from.shape()), " does not fit into ",
          in_words(to.shape()));
  require(from.dtype() == to.dtype() || (is_float(from.dtype()) && is_float(to.dtype())),
          "copy: cannot cast ", name(from.dtype()), " to ", name(to.dtype()));
  // No backend both transfers and casts.
  if (from.dtype() != to.dtype() && &from.backend() != &to.backend())
    return copy(copy_to_memory_of(to, from), to);
  transfer(from, to);
  count_move(from, to);
}

std::future<void> start_copy(const Tensor& from, const Tensor& to) {
  require(from.numel() == to.numel() && from.dtype() == to.dtype(), "start_copy: ", from,
          " does not match ", to);
  to.memory().append_kernel("transfer", from.bytes() + to.bytes());
  count_move(from, to);
  return copying_backend(from, to).start_copy(from, to);
}

void accumulate(const Tensor& from, const Tensor& into) {
  require(from.numel() == into.numel() && is_float(from.dtype()) && is_float(into.dtype()),
          "accumulate: ", from, " cannot be added to ", into);
  if (&from.memory() != &into.memory()) return accumulate(copy_to_memory_of(into, from), into);
  into.memory().append_kernel("accumulate", from.bytes() + into.bytes(), into.numel());
  into.backend().accumulate(from, into);
}

void upload(Dtype type, const void* host, int64_t n, const Tensor& to) {
  require(to.dtype() == type && to.numel() == n, "upload: ", n, " elements of ", name(type),
          " do not fit into ", to);
  to.memory().append_kernel("upload", to.bytes());
  to.backend().upload(host, to);
}

void download(Dtype type, const Tensor& from, void* host) {
  require(from.dtype() == type, "download<", name(type), ">() of a tensor of ", name(from.dtype()));
  from.memory().append_kernel("download", from.bytes());
  from.backend().download(from, host);
}

Download start_download(const Tensor& from) {
  Download started;
  started.is_f32_ = from.dtype() == Dtype::f32;
  require(started.is_f32_ || from.dtype() == Dtype::f64,
          "start_download: the values are f32 or f64, not ", name(from.dtype()));
  started.values_.resize(size_t(from.numel()));
  if (!from.backend().holds_data()) return started;
  from.memory().append_kernel("download", from.bytes());
  started.copy_ = from.backend().start_download(from);
  return started;
}

const std::vector<double>& Download::wait() {
  const auto copy = std::exchange(copy_, nullptr);
  if (!copy || values_.empty()) return values_;
  const void* const host = copy();
  if (is_f32_)
    std::copy_n(static_cast<const float*>(host), values_.size(), values_.begin());
  else
    std::copy_n(static_cast<const double*>(host), values_.size(), values_.begin());
  return values_;
}

double read(const Tensor& scalar) {
  require(scalar.numel() == 1 && (scalar.dtype() == Dtype::f32 || scalar.dtype() == Dtype::f64),
          "read: a scalar is one element of f32 or f64, not ", scalar);
  if (!scalar.backend().holds_data()) return 0;
  return scalar.dtype() == Dtype::f32 ? double(download<float>(scalar)[0])
                                      : download<double>(scalar)[0];
}

void upload_floats(std::span<const float> host, const Tensor& to) {
  for_float_type(to.dtype(),
                 [&]<class T>(T) { upload<T>(std::vector<T>(host.begin(), host.end()), to); });
}

std::vector<float> download_floats(const Tensor& from) {
  std::vector<float> host;
  for_float_type(from.dtype(), [&](auto zero) {
    const auto stored = download<decltype(zero)>(from);
    host.assign(stored.begin(), stored.end());
  });
  return host;
}

}  // namespace zl::kernel
