// A process that `zerolab launch` starts: in a process group of its own, and ended by the system if
// the launcher dies.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace zl::cli {

struct ProcessPlan {
  std::vector<std::string> command;  // the program, a path or a name on PATH, and its arguments
  std::map<std::string, std::string> environment;  // beside the launcher's; empty: unset
  bool keeps_stdin = false, keeps_stdout = false,
       keeps_stderr = false;  // the launcher's own; else /dev/null and the pipe
};

struct StartedProcess {
  pid_t id = -1;    // also of its group
  int output = -1;  // the pipe's end to read, which does not block; to be closed by the caller
};

// Returns when the program runs. It starts with no signal blocked or caught. Throws InputError if
// it cannot be started.
StartedProcess start_process(const ProcessPlan& plan);

// To the process and all of its group.
void send_signal(pid_t id, int signal);

// How a process ended.
struct ProcessEnd {
  int code = 0, signal = 0;  // signal: 0 if it ended by itself
  bool failed() const { return code != 0 || signal != 0; }
};

// Whether the process has ended; then it is gone, and what it left in its group is killed.
bool ended(pid_t id, ProcessEnd& end);

// Whether it was stopped since the last question because it wants to read the terminal from the
// background.
bool wants_terminal(pid_t id);

// "SIGKILL".
std::string signal_name(int signal);

}  // namespace zl::cli
