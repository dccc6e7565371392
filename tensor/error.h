// Errors. Their messages say what was expected, what was found, and what to try.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace zl {

// Joins its arguments into one string. (libstdc++ 12 has no <format>.)
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// The user's input (a file, a flag, a configuration) cannot be used. Programs exit with 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An output could not be written, such as on a full disk. Programs exit with 74.
class OutputError : public InputError {
 public:
  using InputError::InputError;
};

// Throws std::invalid_argument with the joined message: a caller broke a contract. What a step runs
// through writes `if (…) refuse(…)`: where all is well nothing of the message is evaluated, and a
// debugger that steps into calls stays in the function that it shows.
template <class... Args>
[[noreturn]] void refuse(const Args&... message) {
  throw std::invalid_argument(str(message...));
}

// The same unless `ok` holds.
template <class... Args>
void require(bool ok, const Args&... message) {
  if (!ok) refuse(message...);
}

// Throws InputError with the joined message unless `ok`.
template <class... Args>
void require_input(bool ok, const Args&... message) {
  if (!ok) throw InputError(str(message...));
}

}  // namespace zl
