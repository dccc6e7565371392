// One command of the program and its flags. Only flags.cpp, main.cpp and the commands with
// subcommands include CLI11.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/commands/command.h"

namespace CLI {
class Option;
}

namespace zl::cli {

class Flags {
 public:
  // Adds the command `name`. Choosing it sets invocation.run to `run`.
  Flags(CLI::App& app, Invocation& invocation, const std::string& name,
        const std::string& description, std::function<int()> run);

  std::string command() const;  // its name
  // The heading in --help above the flags that are added from now on.
  void group(const std::string& heading) { group_ = heading; }

  using Read = std::function<void(const std::string&)>;
  // A flag with one value, given at most once. `type` is the value's name in --help. An InputError
  // of `read` becomes a UsageError that begins with the flag.
  void value(const std::string& flag, const std::string& type, const std::string& help,
             const Read& read) {
    add(flag, type, help, read, false);
  }
  // A flag whose value may be left out; `read` then gets "". An argument that begins with "-" is
  // not its value.
  void optional_value(const std::string& flag, const std::string& type, const std::string& help,
                      const Read& read);
  // The same as value(), given any number of times; `read` gets the values in order.
  void values(const std::string& flag, const std::string& type, const std::string& help,
              const Read& read) {
    add(flag, type, help, read, true);
  }
  // The name of a file or folder, which must not be empty.
  void name(const std::string& flag, const std::string& type, const std::string& help,
            std::string& into);
  // A flag without a value.
  void toggle(const std::string& flag, const std::string& help, const std::function<void()>& set);
  void toggle(const std::string& flag, const std::string& help, bool& on) {
    toggle(flag, help, [&on] { on = true; });
  }
  // All arguments after "--", unchanged.
  void rest(const std::string& type, const std::string& help, std::vector<std::string>& into);
  // The text below the flags in --help.
  void footer(const std::string& text);

 private:
  CLI::Option& add(const std::string& flag, const std::string& type, const std::string& help,
                   const Read& read, bool several);

  CLI::App& command_;
  std::string group_ = "Options";
};

}  // namespace zl::cli
