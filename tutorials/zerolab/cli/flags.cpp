#include "tutorials/zerolab/cli/flags.h"

#include <CLI/CLI.hpp>

#include "tutorials/zerolab/cli/parse_error.h"

namespace zl::cli {

Flags::Flags(CLI::App& app, Invocation& invocation, const std::string& name,
             const std::string& description, std::function<int()> run)
    : command_(*app.add_subcommand(name, description)) {
  command_.callback([&invocation, run = std::move(run)] { invocation.run = run; });
}

CLI::App& add_commands(CLI::App& app, const std::string& name, const std::string& description) {
  return *app.add_subcommand(name, description)->require_subcommand(1);
}

std::string read_name(const std::string& text) {
  require_input(!text.empty(), "the name is empty");
  return text;
}

std::string Flags::command() const { return path_of(command_); }

void Flags::value(const std::string& flag, const std::string& type, const std::string& help,
                  const Read& read, Takes takes) {
  static const std::string none = "\n";                        // the value that is left out
  const std::string shown = flag.substr(flag.rfind(',') + 1);  // "--factor" of "-f,--factor"
  const auto read_all = [shown, read, takes](const CLI::results_t& given) {
    if (takes != Takes::several && given.size() > 1)
      throw UsageError(str(shown, " is given twice: ", given[0], " and ", given[1]));
    for (const std::string& text : given) try {
        require_input(!text.starts_with("--") || text.size() == 2, "a value is needed, but '", text,
                      "' follows");
        require_input(takes != Takes::optional || !text.empty(), "the name is empty");
        read(text == none ? "" : text);
      } catch (const InputError& e) {
        throw UsageError(str(shown, ": ", e.what()));
      }
    return true;
  };
  CLI::Option& option = *command_.add_option(flag, read_all, help)
                             ->option_text(type)
                             ->group(group_)
                             ->configurable(!more_)
                             ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                             ->allow_extra_args(takes == Takes::several && flag[0] != '-');
  if (takes == Takes::optional)
    option.expected(0, 1)->default_str(none)->option_text("[" + type + "]");
}

void Flags::toggle(const std::string& flag, const std::string& help,
                   const std::function<void()>& set) {
  command_.add_flag_callback(flag, set, help)
      ->group(group_)
      ->configurable(!more_)
      ->option_text(" ")  // instead of what it needs
      ->disable_flag_override();
}

void Flags::needs(const std::string& flag, const std::string& other) {
  command_.get_option(flag)->needs(command_.get_option(other));
}

void Flags::excludes(const std::string& flag, const std::string& other) {
  command_.get_option(flag)->excludes(command_.get_option(other));
}

void Flags::required(const std::string& argument) { command_.get_option(argument)->required(); }

void Flags::footer(const std::string& text) { command_.footer(text); }

}  // namespace zl::cli
