// One command of the program and its flags. Only flags.cpp, main.cpp and the commands with commands
// of their own, config.cpp, model.cpp and data.cpp, know CLI11.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tutorials/zerolab/commands/command.h"

namespace zl::cli {

// The command line itself is wrong: the program says so, points to --help and exits with 2.
class UsageError : public InputError {
 public:
  using InputError::InputError;
};

class Flags {
 public:
  // Adds the command `name`. Choosing it sets invocation.run to `run`.
  Flags(CLI::App& app, Invocation& invocation, const std::string& name,
        const std::string& description, std::function<int()> run);

  std::string command() const;  // its name

  // The heading in --help under which the next flags stand.
  void group(const std::string& heading) { group_ = heading; }

  using Read = std::function<void(const std::string&)>;
  // A flag with one value, given at most once. `type` stands for the value in --help. An InputError
  // of `read` becomes a UsageError that begins with the flag.
  void value(const std::string& flag, const std::string& type, const std::string& help,
             const Read& read);
  // The same, but it may be given several times; `read` sees the values in their order.
  void values(const std::string& flag, const std::string& type, const std::string& help,
              const Read& read);
  // A flag without a value.
  void toggle(const std::string& flag, const std::string& help, bool& on);
  // Everything after "--", as it is.
  void rest(const std::string& type, const std::string& help, std::vector<std::string>& into);
  // What stands below the flags in --help.
  void footer(const std::string& text);

 private:
  CLI::App& command_;
  std::string group_ = "Options";
};

}  // namespace zl::cli
