// Copies between tensors in any memories, which are counted as moves, and transfers between the
// host and tensors on any device. A copy between two types casts: bf16 and f16 round to nearest
// even.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tensor/reference/kernel_call.h"

namespace zl {
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

void kernel::copy(const Tensor& from, const Tensor& to) {
  if (from.numel() != to.numel())
    refuse("copy: ", to_string(from.shape()), " does not fit into ", to_string(to.shape()));
  if (from.dtype() != to.dtype() && !(is_float(from.dtype()) && is_float(to.dtype())))
    refuse("copy: cannot cast ", name(from.dtype()), " to ", name(to.dtype()));
  // No backend both transfers and casts.
  if (from.dtype() != to.dtype() && &from.backend() != &to.backend())
    return copy(copy_to_memory_of(to, from), to);
  transfer(from, to);
  count_move(from, to);
}

// Tensors of one type may be overlapping ranges of one storage.
void Backend::copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() == to.dtype()) return move_bytes(from.address(), to.address(), to.bytes());
  for_float_types(from.dtype(), to.dtype(), [&]<class S, class T>(S, T) {
    const auto x = from.data<S>();
    const auto y = to.data<T>();
    for (size_t i = 0; i < y.size(); ++i) y[i] = T(Compute<T>(Compute<S>(x[i])));
  });
}

std::future<void> kernel::start_copy(const Tensor& from, const Tensor& to) {
  if (from.numel() != to.numel() || from.dtype() != to.dtype())
    refuse("start_copy: ", from, " does not match ", to);
  to.memory().append_kernel("transfer", from.bytes() + to.bytes());
  count_move(from, to);
  return copying_backend(from, to).start_copy(from, to);
}

std::future<void> Backend::start_copy(const Tensor& from, const Tensor& to) {
  copy(from, to);
  return std::async(std::launch::deferred, [] {});
}

void kernel::accumulate(const Tensor& from, const Tensor& into) {
  if (from.numel() != into.numel() || !is_float(from.dtype()) || !is_float(into.dtype()))
    refuse("accumulate: ", from, " cannot be added to ", into);
  if (&from.memory() != &into.memory()) return accumulate(copy_to_memory_of(into, from), into);
  recorded("accumulate", into, into.numel(), {&from, &into}).accumulate(from, into);
}

void Backend::accumulate(const Tensor& from, const Tensor& into) {
  for_float_types(from.dtype(), into.dtype(), [&]<class S, class T>(S, T) {
    using F = decltype(Compute<S>() + Compute<T>());  // the wider of the two
    const auto x = from.data<S>();
    const auto y = into.data<T>();
    for (size_t i = 0; i < y.size(); ++i) y[i] = T(Compute<T>(F(y[i]) + F(x[i])));
  });
}

void kernel::upload(Dtype type, const void* host, int64_t n, const Tensor& to) {
  if (to.dtype() != type || to.numel() != n)
    refuse("upload: ", n, " elements of ", name(type), " do not fit into ", to);
  recorded("upload", to, 0, {&to}).upload(host, to);
}

// Done when they return, also in a backend whose move_bytes is only enqueued.
void Backend::upload(const void* host, const Tensor& to) {
  Backend::move_bytes(host, to.host_address(), to.bytes());
}

void kernel::download(Dtype type, const Tensor& from, void* host) {
  if (from.dtype() != type)
    refuse("download<", name(type), ">() of a tensor of ", name(from.dtype()));
  recorded("download", from, 0, {&from}).download(from, host);
}

void Backend::download(const Tensor& from, void* host) {
  Backend::move_bytes(from.host_address(), host, from.bytes());
}

void Backend::move_bytes(const void* from, void* to, int64_t bytes) {
  if (bytes > 0) std::memmove(to, from, size_t(bytes));
}

kernel::Download kernel::start_download(const Tensor& from) {
  Download started;
  started.is_f32_ = from.dtype() == Dtype::f32;
  if (!started.is_f32_ && from.dtype() != Dtype::f64)
    refuse("start_download: the values are f32 or f64, not ", name(from.dtype()));
  started.values_.resize(size_t(from.numel()));
  if (!from.backend().holds_data()) return started;
  started.copy_ = recorded("download", from, 0, {&from}).start_download(from);
  return started;
}

std::function<const void*()> Backend::start_download(const Tensor& from) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(size_t(from.bytes()));
  download(from, bytes->data());
  return [bytes] { return bytes->data(); };
}

const std::vector<double>& kernel::Download::wait() {
  const auto copy = std::exchange(copy_, nullptr);
  if (!copy || values_.empty()) return values_;
  const void* const host = copy();
  if (is_f32_)
    std::copy_n(static_cast<const float*>(host), values_.size(), values_.begin());
  else
    std::copy_n(static_cast<const double*>(host), values_.size(), values_.begin());
  return values_;
}

double kernel::read(const Tensor& scalar) {
  if (scalar.numel() != 1 || (scalar.dtype() != Dtype::f32 && scalar.dtype() != Dtype::f64))
    refuse("read: a scalar is one element of f32 or f64, not ", scalar);
  return start_download(scalar).wait()[0];
}

void kernel::upload_floats(std::span<const float> host, const Tensor& to) {
  for_float_type(to.dtype(),
                 [&]<class T>(T) { upload<T>(std::vector<T>(host.begin(), host.end()), to); });
}

std::vector<float> kernel::download_floats(const Tensor& from) {
  std::vector<float> host;
  for_float_type(from.dtype(), [&](auto zero) {
    const auto stored = download<decltype(zero)>(from);
    host.assign(stored.begin(), stored.end());
  });
  return host;
}

}  // namespace zl
