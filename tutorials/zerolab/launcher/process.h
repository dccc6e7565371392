// A process that `zerolab launch` starts. It leads its own process group, and the system kills it
// if the launcher dies.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "tensor/error.h"

namespace zl::cli {

struct ProcessPlan {
  std::vector<std::string> command;  // the program, a path or a name on PATH, and its arguments
  std::map<std::string, std::string> environment;  // added to the launcher's; empty: unset
  // Which streams are the launcher's; the others are /dev/null and the pipe.
  bool keeps_stdin = false, keeps_stdout = false, keeps_stderr = false;
};

struct StartedProcess {
  pid_t id = -1;    // also of its group
  int output = -1;  // the read end of the pipe, non-blocking; the caller closes it
};

// There is no such program.
class ProgramNotFound : public InputError {
 public:
  using InputError::InputError;
};

// Returns when the program runs, with no signal blocked or caught. Throws ProgramNotFound, or
// InputError if it cannot be started for another reason.
StartedProcess start_process(const ProcessPlan& plan);

// Sends `signal` to the process and its group.
void send_signal(pid_t id, int signal);

// How a process ended.
struct ProcessEnd {
  int code = 0, signal = 0;  // signal: the one that killed it, or 0
};

// Whether the process has ended. If so, it is waited for, and the rest of its group is killed.
bool ended(pid_t id, ProcessEnd& end);

// Whether it was stopped since the last call because it read the terminal from the background.
bool wants_terminal(pid_t id);

// "SIGKILL".
std::string signal_name(int signal);

}  // namespace zl::cli
