// Errors that say what was expected, what came, and what to try next.
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

// What the user gave (a file, a flag, a configuration) cannot be used. Programs exit with 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws std::invalid_argument with the joined message unless `ok` holds: a caller broke a
// contract.
template <class... Args>
void require(bool ok, const Args&... message) {
  if (!ok) throw std::invalid_argument(str(message...));
}

// Throws InputError with the joined message unless `ok` holds.
template <class... Args>
void require_input(bool ok, const Args&... message) {
  if (!ok) throw InputError(str(message...));
}

}  // namespace zl
