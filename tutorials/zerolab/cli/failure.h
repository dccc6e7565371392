// Exit codes, and the sentence and code that each kind of error ends the program with.
#pragma once

#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "dist/run_ranks.h"
#include "stages/train/trainer.h"
#include "tensor/error.h"
#include "tensor/memory.h"
#include "tutorials/zerolab/cli/interrupt.h"

namespace zl::cli {

enum ExitCode {
  kFine = 0,
  kFailed = 1,
  kUsage = 2,
  kOutOfMemory = 3,
  kCommunication = 4,
  kUnforeseen = 70,
  kNotWritten = 74
};

// The command line itself is wrong: the program points to --help as well.
class UsageError : public InputError {
 public:
  using InputError::InputError;
};

inline void end_if_interrupted() {
  if (interrupt_requested()) throw Interrupted();
}

struct Failure {
  int code = kUnforeseen;
  std::string text;
};

// "interrupted" for Ctrl-C (SIGINT or 0), else "ended by SIGTERM".
inline std::string interrupted_by(int signal) {
  if (signal == 0 || signal == SIGINT) return "interrupted";
  return std::string("ended by SIG") + sigabbrev_np(signal);
}

// The error is one of this class.
template <class Error>
bool is(const std::exception& e) {
  return dynamic_cast<const Error*>(&e) != nullptr;
}

// The error ends a run because of a signal, on this rank or on another one.
inline bool is_interrupt(const std::exception& e, int signal) {
  return is<Interrupted>(e) ||
         (signal != 0 && is<CommunicationError>(e) && !is_death_before(signal, e.what()));
}

// The sentence and the code of an error. `signal`: the one that asked the program to end, or 0.
// Exit code 128 + signal is then used.
inline Failure failure_of(const std::exception_ptr& error, int signal) {
  const Failure interrupted{128 + (signal != 0 ? signal : SIGINT), interrupted_by(signal)};
  const char* report = "report it with the command line and the output of 'zerolab doctor'.";
  try {
    std::rethrow_exception(error);
  } catch (const std::filesystem::filesystem_error& e) {  // about a path that the user named
    const bool full = e.code() == std::errc::no_space_on_device;
    return {full ? kNotWritten : kUsage, e.path1().string() + ": " + e.code().message()};
  } catch (const std::exception& e) {
    const auto* system = dynamic_cast<const std::system_error*>(&e);
    const std::string text = e.what();
    if (is_interrupt(e, signal)) return interrupted;
    for (const auto& [of_class, code] : {std::pair{is<OutputError>(e), kNotWritten},
                                         {is<InputError>(e), kUsage},
                                         {is<OutOfMemory>(e), kOutOfMemory},
                                         {is<CommunicationError>(e), kCommunication},
                                         {is<LossScaleExhausted>(e), kFailed},
                                         // What students have yet to write.
                                         {text.starts_with("not written yet"), kFailed}})
      if (of_class) return {code, text};
    if (is<std::bad_alloc>(e))
      return {kOutOfMemory,
              "this machine has no memory left; try a smaller model, fewer ranks or a smaller "
              "micro-batch"};
    if (system && system->code() == std::errc::resource_unavailable_try_again)
      return {kCommunication,
              "the system refused another thread; try fewer ranks or fewer --threads, or raise the "
              "limit (ulimit -u, ulimit -v, or the container's limit of processes)"};
    if (system) return {kUnforeseen, "the system reported an error: " + text};
    if (is<std::invalid_argument>(e))
      return {kUnforeseen, str(text,
                               "\nA function was called against its contract. If you changed a "
                               "model, a stage or an optimizer, look there first.\nOtherwise: ",
                               report)};
    return {kUnforeseen, str("unforeseen: ", text, "\nThis is a bug in zerolab; ", report)};
  }
}

}  // namespace zl::cli
