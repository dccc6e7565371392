#include "tensor/backend.h"

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace zl {
namespace {

class FinishedCopy final : public HostCopy {
 public:
  explicit FinishedCopy(int64_t bytes) : bytes_(size_t(bytes)) {}
  void* data() { return bytes_.data(); }
  const void* wait() override { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

class FinishedTransfer final : public Transfer {
 public:
  void wait() override {
    if (std::exchange(waited_, true)) throw std::logic_error("a transfer was waited for twice");
  }

 private:
  bool waited_ = false;
};

}  // namespace

std::unique_ptr<Transfer> Backend::start_copy(const Tensor& from, const Tensor& to) {
  copy(from, to);
  return std::make_unique<FinishedTransfer>();
}

std::unique_ptr<HostCopy> Backend::start_download(const Tensor& from) {
  auto copy = std::make_unique<FinishedCopy>(from.bytes());
  download(from, copy->data());
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
