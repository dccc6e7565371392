#include "tutorials/zerolab/cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

namespace zl::cli {
namespace {

constexpr std::chrono::milliseconds kToLearnOfDeath{200};
// A program such as timeout sends one signal to this process and to its group.
constexpr double kSameSignal = 0.1;  // [s]

std::atomic<int> requested = 0;
std::atomic<double> since = 0;  // [s] the first signal
// A signal handler may use them.
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<double>::is_always_lock_free);

double now() {  // [s]
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

extern "C" void on_interrupt(int number) {
  double never = 0;
  since.compare_exchange_strong(never, now());
  int none = 0;
  if (!requested.compare_exchange_strong(none, number) && none == number &&
      now() - since > kSameSignal)
    _exit(128 + number);
}

}  // namespace

void open_standard_streams() {
  // Otherwise the next file that is opened would become stderr, and progress would be written
  // into it.
  int fd = 0;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= 2);
  if (fd > 2) close(fd);
}

void watch_signals() {
  struct sigaction action = {}, before = {};
  action.sa_flags = SA_RESTART;  // reading data goes on; the run ends where it polls
  action.sa_handler = on_interrupt;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) {
    sigaction(number, nullptr, &before);
    if (number != SIGHUP || before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);  // beyond ulimit -f, write() says EFBIG
}

void interrupted_elsewhere() {
  int none = 0;
  requested.compare_exchange_strong(none, SIGTERM);
}

bool interrupt_requested() {
  const int signal = interrupt_signal();
  if (signal != SIGTERM || !sigterm_follows_death) return signal != 0;
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point noticed = Clock::now();
  return Clock::now() - noticed > kToLearnOfDeath;
}

int interrupt_signal() { return requested.load(std::memory_order_relaxed); }

}  // namespace zl::cli
