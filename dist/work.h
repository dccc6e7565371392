// A communication that may still be under way.
#pragma once

#include <functional>
#include <utility>

namespace zl {

// Whoever starts a communication waits for it before touching its tensors.
class Work {
 public:
  Work() = default;  // already done
  explicit Work(std::function<void()> finish) : finish_(std::move(finish)) {}
  Work(Work&& other) noexcept : finish_(std::exchange(other.finish_, nullptr)) {}
  Work& operator=(Work&& other) noexcept {
    finish_ = std::exchange(other.finish_, nullptr);
    return *this;
  }
  // Returns when the result is there. Throws CommunicationError.
  void wait() {
    if (auto finish = std::exchange(finish_, nullptr)) finish();
  }
  bool pending() const { return bool(finish_); }

 private:
  std::function<void()> finish_;
};

}  // namespace zl
