// One command of the program and its flags. Only flags.cpp, options.cpp, main.cpp and the commands
// with subcommands include CLI11.
#pragma once

#include <functional>
#include <string>

#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/commands/command.h"

namespace zl::cli {

// The name of a file or folder. Throws InputError if it is empty.
std::string read_name(const std::string& text);

// A command that has commands: those that are added to what it returns.
CLI::App& add_commands(CLI::App& app, const std::string& name, const std::string& description);

// --help shows a help text or footer up to its '\f', --help-all also what follows it.
class Flags {
 public:
  // Adds the command `name`. Choosing it sets invocation.run to `run`.
  Flags(CLI::App& app, Invocation& invocation, const std::string& name,
        const std::string& description, std::function<int()> run);

  std::string command() const;  // "train", "bench step"
  // The heading above the flags that are added from now on. `more`: only --help-all lists them.
  void group(const std::string& heading, bool more = false) { group_ = heading, more_ = more; }

  using Read = std::function<void(const std::string&)>;
  enum class Takes { one, several, optional };
  // A flag with a value, or an argument such as "FILE". `type` is the value's name in --help. It is
  // given at most once; `several`: any number of times, and `read` gets the values in order;
  // `optional`: without its value `read` gets "", and what begins with "-" is not its value. An
  // InputError of `read` becomes a UsageError that begins with the flag.
  void value(const std::string& flag, const std::string& type, const std::string& help,
             const Read& read, Takes takes = Takes::one);
  // A flag whose value `into` becomes, as `read` gives it for the text.
  template <class T>
  void add(const std::string& flag, const std::string& type, T& into, const auto& read,
           const std::string& help) {
    value(flag, type, help, [&into, read](const std::string& text) { into = T(read(text)); });
  }
  // A flag with the name of a file or folder.
  void name(const std::string& flag, const std::string& type, const std::string& help,
            std::string& into) {
    add(flag, type, into, read_name, help);
  }
  // A flag without a value.
  void toggle(const std::string& flag, const std::string& help, const std::function<void()>& set);
  void toggle(const std::string& flag, const std::string& help, bool& on) {
    toggle(flag, help, [&on] { on = true; });
  }
  // The first flag has no effect without the second.
  void needs(const std::string& flag, const std::string& other);
  // They contradict each other.
  void excludes(const std::string& flag, const std::string& other);
  // An argument that must be given.
  void required(const std::string& argument);
  // The text below the flags in --help.
  void footer(const std::string& text);

 private:
  CLI::App& command_;
  std::string group_ = "Flags";
  bool more_ = false;
};

}  // namespace zl::cli
