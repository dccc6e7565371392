// How far a measurement is, on stderr: one line that is written over on a terminal, elsewhere about
// ten plain lines.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/terminal.h"

namespace zl::cli {

class BenchProgress {
 public:
  BenchProgress(int64_t total, bool quiet)
      : terminal_(standard_error(Color::automatic)), total_(total), quiet_(quiet) {}
  ~BenchProgress() { clear(); }
  BenchProgress(const BenchProgress&) = delete;
  BenchProgress& operator=(const BenchProgress&) = delete;

  // One more of `total` begins: `what`.
  void next(const std::string& what) {
    const int64_t n = done_++, every = std::max<int64_t>(1, total_ / 10);
    if (quiet_ || (!terminal_.rewrites && n % every != 0)) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const std::string line =
        str(n + 1, "/", total_, " ", what,
            n > 0 ? ", ETA " + short_time(seconds / double(n) * double(total_ - n)) : "");
    std::fputs((terminal_.rewrites
                    ? "\r" + line.substr(0, size_t(std::max(20, terminal_.width() - 1))) + "\x1b[K"
                    : line + "\n")
                   .c_str(),
               stderr);
    std::fflush(stderr);
    open_ = terminal_.rewrites;
  }
  void clear() {
    if (open_) std::fputs("\r\x1b[K", stderr);
    open_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Terminal terminal_;
  int64_t total_, done_ = 0;
  bool quiet_, open_ = false;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace zl::cli
