#include "tutorials/zerolab/cli/flags.h"

#include <CLI/CLI.hpp>

namespace zl::cli {
namespace {

void read_one(const std::string& flag, const std::string& text, const Flags::Read& read) {
  if (text.starts_with("--") && text.size() > 2)
    throw UsageError(str(flag, " needs a value, but '", text, "' follows"));
  try {
    read(text);
  } catch (const UsageError&) {
    throw;
  } catch (const InputError& e) {
    throw UsageError(str(flag, ": ", e.what()));
  }
}

}  // namespace

Flags::Flags(CLI::App& app, Invocation& invocation, const std::string& name,
             const std::string& description, std::function<int()> run)
    : command_(*app.add_subcommand(name, description)) {
  command_.group("Commands");
  command_.callback([&invocation, run = std::move(run)] { invocation.run = run; });
}

std::string Flags::command() const { return command_.get_name(); }

void Flags::value(const std::string& flag, const std::string& type, const std::string& help,
                  const Read& read) {
  const std::string shown = flag.substr(flag.rfind(',') + 1);  // "--factor" of "-f,--factor"
  const auto once = [shown, read](const CLI::results_t& given) {
    if (given.size() > 1)
      throw UsageError(str(shown, " is given twice: ", given[0], " and ", given[1]));
    read_one(shown, given.at(0), read);
    return true;
  };
  command_.add_option(flag, once, help)
      ->type_name(type)
      ->group(group_)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Flags::values(const std::string& flag, const std::string& type, const std::string& help,
                   const Read& read) {
  const auto each = [flag, read](const CLI::results_t& given) {
    for (const std::string& text : given) read_one(flag, text, read);
    return true;
  };
  command_.add_option(flag, each, help)
      ->type_name(type)
      ->group(group_)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Flags::toggle(const std::string& flag, const std::string& help, bool& on) {
  command_
      .add_flag_callback(
          flag, [&on] { on = true; }, help)
      ->group(group_)
      ->disable_flag_override();
}

void Flags::rest(const std::string& type, const std::string& help, std::vector<std::string>& into) {
  command_.add_option(type, into, help)->group(group_)->type_name("")->expected(-1);
}

void Flags::footer(const std::string& text) { command_.footer(text); }

}  // namespace zl::cli
