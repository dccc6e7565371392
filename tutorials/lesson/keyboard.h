// Single keys of a terminal.
#pragma once

#include <signal.h>

namespace zl::lesson {

// Whether a person can see stdout and answer on stdin.
bool has_keyboard();

// While it lives, keys come one by one and are not echoed. Its end restores the terminal, and so
// does a signal that ends the program. Ctrl-C stays a signal.
class SingleKeys {
 public:
  SingleKeys();
  ~SingleKeys();
  SingleKeys(const SingleKeys&) = delete;
  SingleKeys& operator=(const SingleKeys&) = delete;
  char read() const;  // waits for a key of stdin; 'q' at its end

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  struct sigaction before_[4] = {};
  bool changed_ = false;
};

// Rows of the terminal on stdout; 24 if it does not say.
int terminal_rows();

}  // namespace zl::lesson
