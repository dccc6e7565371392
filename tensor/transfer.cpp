// Transfers between the host and tensors on any device.
#include <cstring>
#include <utility>

#include "tensor/kernels.h"

namespace zl::kernel {

template <class T>
void upload(std::span<const T> host, const Tensor& to) {
  require(to.dtype() == dtype_of<T> && to.numel() == int64_t(host.size()), "upload: ", host.size(),
          " elements of ", name(dtype_of<T>), " do not fit into ", to_string(to.shape()), " ",
          name(to.dtype()));
  to.memory().events().append(EventKind::kernel, "upload", to.bytes());
  to.backend().upload(host.data(), to);
}

template <class T>
std::vector<T> download(const Tensor& from) {
  require(from.dtype() == dtype_of<T>, "download<", name(dtype_of<T>), ">() of a tensor of ",
          name(from.dtype()));
  std::vector<T> host(size_t(from.numel()));
  from.memory().events().append(EventKind::kernel, "download", from.bytes());
  from.backend().download(from, host.data());
  return host;
}

template <class T>
Download<T> start_download(const Tensor& from, T on_meta) {
  require(from.dtype() == dtype_of<T>, "start_download<", name(dtype_of<T>), ">() of a tensor of ",
          name(from.dtype()));
  Download<T> started;
  started.values_.assign(size_t(from.numel()), on_meta);
  if (!from.backend().holds_data()) return started;
  from.memory().events().append(EventKind::kernel, "download", from.bytes());
  started.copy_ = from.backend().start_download(from);
  return started;
}

template <class T>
const std::vector<T>& Download<T>::wait() {
  if (const auto copy = std::exchange(copy_, nullptr); copy && !values_.empty())
    std::memcpy(values_.data(), copy->wait(), values_.size() * sizeof(T));
  return values_;
}

template class Download<float>;
template class Download<double>;
template Download<float> start_download<float>(const Tensor&, float);
template Download<double> start_download<double>(const Tensor&, double);

#define ZL_INSTANTIATE(T)                                     \
  template void upload<T>(std::span<const T>, const Tensor&); \
  template std::vector<T> download<T>(const Tensor&);
ZL_INSTANTIATE(float)
ZL_INSTANTIATE(double)
ZL_INSTANTIATE(bf16)
ZL_INSTANTIATE(f16)
ZL_INSTANTIATE(int32_t)
#undef ZL_INSTANTIATE

double read(const Tensor& scalar, double on_meta) {
  require(scalar.numel() == 1 && (scalar.dtype() == Dtype::f32 || scalar.dtype() == Dtype::f64),
          "read: a scalar is one element of f32 or f64, not ", to_string(scalar.shape()), " ",
          name(scalar.dtype()));
  if (!scalar.backend().holds_data()) return on_meta;
  return scalar.dtype() == Dtype::f32 ? double(download<float>(scalar)[0])
                                      : download<double>(scalar)[0];
}

void upload_floats(std::span<const float> host, const Tensor& to) {
  for_float_type(to.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>) return upload<float>(host, to);
    std::vector<T> cast(host.size());
    for (size_t i = 0; i < host.size(); ++i) cast[i] = T(host[i]);
    upload<T>(cast, to);
  });
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
