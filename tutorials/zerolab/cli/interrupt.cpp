#include "tutorials/zerolab/cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace zl::cli {
namespace {

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // so that a signal handler may touch it

extern "C" void on_interrupt(int) {
  if (requested.exchange(true)) _exit(130);
}

}  // namespace

void open_standard_streams() {
  // A stream that came closed would become the next file that is opened, and progress would be
  // written into it.
  while (true) {
    const int fd = open("/dev/null", O_RDWR);
    if (fd < 0) return;
    if (fd > 2) {
      close(fd);
      return;
    }
  }
}

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // reading data goes on; the run ends where it polls
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);  // beyond ulimit -f, write() says EFBIG
}

bool interrupt_requested() { return requested.load(std::memory_order_relaxed); }

}  // namespace zl::cli
