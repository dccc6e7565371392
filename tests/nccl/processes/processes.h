// Ranks that are processes, for tests: forked from the test, watched, signalled and reaped,
// whatever becomes of them.
//
// To be used while the test has one thread. The children leave by _exit(): nothing of the test that
// they were copied from runs in them, no other case, no destructor. They die with the test.
#pragma once

#include <sys/types.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace zl::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kCanFork =
    false;  // the thread sanitizer has threads, which a fork does not copy
#else
inline constexpr bool kCanFork = true;
#endif

inline void require_forks() {
  if (!kCanFork) SKIP("no forks under the thread sanitizer");
}

// How a child ended.
struct ProcessEnd {
  int code = -1;                      // its exit code; -1: a signal ended it
  int signal = 0;                     // which; 0: none
  bool overdue = false;               // this waited too long, and killed it
  std::chrono::milliseconds after{};  // since it was forked
  std::string said;                   // all of it, also of a child that was killed
  bool well() const { return code == 0; }
};
std::string describe(const ProcessEnd& end);  // "exit code 4 after 310 ms: …"

class Processes {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Say = std::function<void(const std::string& text)>;  // reaches the test at once; 64 KiB
                                                             // before it waits for it
  // Returns the exit code. What it throws is said, and the exit code is 70.
  using Body = std::function<int(int child, const Say& say)>;

  static constexpr int kThrew = 70;

  Processes(int count, const Body& body);
  ~Processes();  // kills and reaps those that are left
  Processes(const Processes&) = delete;

  void signal(int child, int signal);  // nothing if it has ended

  // Looks after the children for that long, or until all have ended; returns whether they have.
  bool watch(Milliseconds time);
  // Returns when all have ended, by child. After `limit` those that are left are killed and called
  // overdue.
  std::vector<ProcessEnd> wait(Milliseconds limit);

 private:
  struct Child {
    pid_t pid = 0;
    int pipe = -1;  // what it says comes out here
    bool ended = false;
    ProcessEnd end;
  };
  bool look();
  void end_all();
  void listen(Child& child);

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::vector<Child> children_;
};

// All in one: forks, waits, reaps.
std::vector<ProcessEnd> run_processes(int count, const Processes::Body& body,
                                      Processes::Milliseconds limit);

}  // namespace zl::test
