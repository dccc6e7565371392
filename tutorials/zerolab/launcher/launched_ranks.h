// The ranks of `zerolab launch`: starts them, passes on what they write and what the user signals,
// and ends them together.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tutorials/zerolab/cli/terminal.h"
#include "tutorials/zerolab/launcher/launched_output.h"
#include "tutorials/zerolab/launcher/launched_process.h"

namespace zl::cli {

struct LaunchPlan {
  std::vector<std::string> command;
  int ranks = 1;
  std::chrono::duration<double> grace{
      5};  // [s] what the others have after the first failure, before SIGTERM
  int port = 0;
  std::string run;
};

class LaunchedRanks {
 public:
  LaunchedRanks(LaunchPlan plan, Terminal terminal);
  ~LaunchedRanks();  // kills those that still run
  LaunchedRanks(const LaunchedRanks&) = delete;

  // Returns the exit code when all have ended. Throws InputError if they cannot be started.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    pid_t id = -1;
    int output = -1;
    bool alive = false;
    bool ended_by_us = false;
    ProcessEnd end;
    double seconds = 0;
    PrefixedLines lines;
  };

  void watch_signals();
  void start(int number);
  void serve();
  int wait_ms() const;
  void take_signals();
  void take_signal(int number);
  void pause();
  void take_output(Rank& rank);
  void take_ends();
  void take_end(int number);
  void end_in_time();
  void signal_all(int number);
  void give_terminal(pid_t group);
  void say(const std::string& sentence);
  std::string summary() const;
  int exit_code() const;
  int alive() const;

  const LaunchPlan plan_;
  const Terminal terminal_;
  SlowWriter err_;
  std::vector<Rank> ranks_;
  const Clock::time_point begin_ = Clock::now();
  int signals_ = -1;            // a file descriptor from which they are read
  bool gave_terminal_ = false;  // to rank 0, which reads it
  std::optional<int> cause_;    // the rank whose failure decides the exit code
  int interrupts_ = 0;          // Ctrl-C, how often
  int told_to_end_ = 0;         // SIGTERM or SIGHUP, if it came
  std::optional<Clock::time_point> terminate_at_, kill_at_;
};

}  // namespace zl::cli
