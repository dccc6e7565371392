// What the device memory of rank 0 holds when it holds the most, read from its event stream.
#pragma once

#include <array>
#include <numeric>
#include <string_view>

#include "stages/train/trainer.h"

namespace zl::cli {

using MemoryByUse = std::array<int64_t, kMemoryUses>;  // [B]

class StageMeter {
 public:
  StageMeter() = default;
  StageMeter(const StageMeter&) = delete;  // the rank's listener holds its address
  StageMeter& operator=(const StageMeter&) = delete;

  // To be called on each rank before the first step.
  void at_start(Trainer& training) {
    if (training.comm().rank() != 0) return;
    for (size_t use = 0; use < live_.size(); ++use)
      live_[use] = training.memory().ledger().live(MemoryUse(use));
    at_peak_ = live_;
    training.comm().events().listen([this](const Event& event) {
      const bool taken = event.kind == EventKind::allocate;
      if ((!taken && event.kind != EventKind::release) ||
          event.detail != std::string_view(name(Pool::device)))
        return;
      for (size_t use = 0; use < live_.size(); ++use)
        if (event.what == std::string_view(name(MemoryUse(use))))
          live_[use] += taken ? event.bytes : -event.bytes;
      if (total(live_) > total(at_peak_)) at_peak_ = live_;
    });
  }
  // By use, at the first instant at which the total was highest; when all ranks have ended.
  const MemoryByUse& at_peak() const { return at_peak_; }

 private:
  static int64_t total(const MemoryByUse& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
  }

  MemoryByUse live_{}, at_peak_{};
};

}  // namespace zl::cli
