// Handle of an asynchronous collective.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

namespace zl {

// Do not access the tensors of a collective before wait() has returned. Every Work must be waited
// for: overwriting a pending one throws std::logic_error, and destroying one runs `dropped`, by
// which the Communicator makes its next call throw. While an exception unwinds the stack a Work may
// be destroyed: the rank fails anyway. A Work may outlive its run or the memory of its tensors:
// the transfer ends with them, and wait() throws CommunicationError. Use it on the rank's thread.
class Work {
 public:
  Work() = default;  // complete
  explicit Work(std::function<void()> finish, std::function<void()> dropped = {})
      : finish_(std::move(finish)), dropped_(std::move(dropped)) {}
  Work(Work&& other) noexcept
      : finish_(std::exchange(other.finish_, {})), dropped_(std::exchange(other.dropped_, {})) {}
  Work& operator=(Work&& other) {
    if (pending()) throw std::logic_error("a pending Work is overwritten; call wait() on it first");
    finish_ = std::exchange(other.finish_, {});
    dropped_ = std::exchange(other.dropped_, {});
    return *this;
  }
  ~Work() {
    if (pending() && dropped_ && std::uncaught_exceptions() == 0) dropped_();
  }
  // From then on the compute stream (CPUs: the caller) sees the result. Throws CommunicationError.
  void wait() {
    if (const auto finish = std::exchange(finish_, {})) finish();
  }
  bool pending() const { return bool(finish_); }

 private:
  std::function<void()> finish_, dropped_;
};

// Its wait() waits for `work`, and then calls `then`.
inline Work and_then(Work work, std::function<void()> then) {
  const auto held = std::make_shared<Work>(std::move(work));
  return Work([held, then = std::move(then)] {
    held->wait();
    then();
  });
}

}  // namespace zl
