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

// Throws std::invalid_argument with the joined message unless `ok` holds: a caller broke a
// contract.
template <class... Args>
void require(bool ok, const Args&... message) {
  if (!ok) throw std::invalid_argument(str(message...));
}

// Throws InputError with the joined message unless `ok`.
template <class... Args>
void require_input(bool ok, const Args&... message) {
  if (!ok) throw InputError(str(message...));
}

}  // namespace zl
