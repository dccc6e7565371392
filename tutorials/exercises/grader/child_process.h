// A process with limits of time, output and memory that leaves nothing behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zl::exercises {

inline constexpr int kResultFile = 3;  // the file descriptor of ChildEnd::result

struct ChildLimits {
  std::chrono::duration<double> time{10};
  int64_t output = 1 << 20;       // [B] of stdout and stderr together; then it is killed
  int64_t kept_output = 8 << 10;  // [B] of it that ChildEnd::output keeps
  int64_t memory = 0;             // [B] of address space; 0: no limit
  int64_t file = 0;               // [B] of a file that it writes; 0: no limit
  std::string input;              // its stdin; at most 4 KiB
  std::string folder;  // where it runs and puts temporary files; "": where this process runs
};

struct ChildEnd {
  int code = 0, signal = 0;  // signal: the one that killed it, or 0
  bool timed_out = false, too_much_output = false;
  std::string output;  // stdout and stderr as they came
  std::string result;  // what it wrote to kResultFile, at most 64 MiB; more is too_much_output
  double seconds = 0;
};

// Runs `command`, a path or a name on PATH and its arguments, in a new session and with few
// environment variables. When it ends, or its time is up, or `interrupted` is true, every process
// that it has started is killed, also those in other sessions. So meanwhile this process must start
// others only through this function, which several threads may call. Throws Interrupted, and
// InputError if the command cannot be started.
ChildEnd run_child(const std::vector<std::string>& command, const ChildLimits& limits,
                   const std::function<bool()>& interrupted = {});

}  // namespace zl::exercises
