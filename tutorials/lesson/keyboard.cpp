#include "tutorials/lesson/keyboard.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string>

namespace zl::lesson {
namespace {

termios cooked;  // how the terminal was; set before the handler can run

// Restores the terminal, then dies as if there were no handler. Calls nothing that a signal handler
// may not call.
extern "C" void restore_and_die(int signal_number) {
  tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
  const char newline = '\n';
  if (write(STDOUT_FILENO, &newline, 1) < 0) _exit(128 + signal_number);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

SingleKeys::SingleKeys() {
  if (tcgetattr(STDIN_FILENO, &cooked) != 0) return;
  struct sigaction action = {};
  action.sa_handler = restore_and_die;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  termios raw = cooked;
  raw.c_lflag &= tcflag_t(~(ICANON | ECHO));
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  changed_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

SingleKeys::~SingleKeys() {
  if (!changed_) return;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

char SingleKeys::read() const {
  char key = 0;
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, &key, 1);
    if (n == 1) return key;
    if (n == 0 || errno != EINTR) return 'q';
  }
}

bool has_keyboard() {
  const char* term = std::getenv("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && term != nullptr &&
         std::string(term) != "dumb";
}

int terminal_rows() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

}  // namespace zl::lesson
