#include "tensor/backend.h"

#include <chrono>

namespace zl {

double Backend::seconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  synchronize();
  const auto begin = Clock::now();
  work();
  synchronize();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace zl
