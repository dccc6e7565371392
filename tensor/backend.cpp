#include "tensor/backend.h"

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace zl {
namespace {

struct FinishedCopy final : HostCopy {
  const void* wait() override { return bytes.data(); }
  std::vector<std::byte> bytes;
};

struct FinishedTransfer final : Transfer {
  void wait() override {
    if (std::exchange(waited, true)) throw std::logic_error("a transfer was waited for twice");
  }
  bool waited = false;
};

}  // namespace

std::unique_ptr<Transfer> Backend::start_copy(const Tensor& from, const Tensor& to) {
  copy(from, to);
  return std::make_unique<FinishedTransfer>();
}

std::unique_ptr<HostCopy> Backend::start_download(const Tensor& from) {
  auto copy = std::make_unique<FinishedCopy>();
  copy->bytes.resize(size_t(from.bytes()));
  download(from, copy->bytes.data());
  return copy;
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
