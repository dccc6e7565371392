#include "tensor/backend.h"

#include <chrono>
#include <cstddef>
#include <vector>

#include "tensor/tensor.h"

namespace zl {

std::future<void> Backend::start_copy(const Tensor& from, const Tensor& to) {
  copy(from, to);
  return std::async(std::launch::deferred, [] {});
}

std::function<const void*()> Backend::start_download(const Tensor& from) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(size_t(from.bytes()));
  download(from, bytes->data());
  return [bytes] { return bytes->data(); };
}

std::function<double()> Backend::timing(Stream, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  synchronize();
  const auto begin = Clock::now();
  work();
  synchronize();
  return
      [seconds = std::chrono::duration<double>(Clock::now() - begin).count()] { return seconds; };
}

}  // namespace zl
