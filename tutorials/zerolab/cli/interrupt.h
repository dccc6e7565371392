// Ctrl-C, SIGTERM, SIGHUP and SIGXCPU: the first asks the run to end between two steps; the same
// one again ends the program at once.
#pragma once

#include <atomic>
#include <csignal>
#include <string_view>

namespace zl::cli {

// Takes over these signals, except a SIGHUP that is ignored (nohup). Also keeps a reader that goes
// away (`zerolab … | head -1`) from killing the program.
void watch_signals();

// Opens /dev/null in place of stdin, stdout or stderr if they came closed. Call it before any file
// is opened.
void open_standard_streams();

// mpirun, srun and torchrun send SIGTERM to all ranks when one of them dies. While this is set, a
// run that is asked to end by SIGTERM goes on for a moment, in which it learns of that death and
// fails.
inline std::atomic<bool> sigterm_follows_death = false;
// Whether what ended the run is such a death: then `signal` is not the cause.
inline bool is_death_before(int signal, std::string_view failure) {
  return sigterm_follows_death && signal == SIGTERM && failure.find("has died") != failure.npos;
}

// The signal that asked the run to end, or 0. Any thread may ask.
int interrupt_signal();
// Another rank was asked to end, and this one ends with it: as after SIGTERM.
void interrupted_elsewhere();
// Whether to end the run.
bool interrupt_requested();

}  // namespace zl::cli
