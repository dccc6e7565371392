#include "tutorials/zerolab/cli/flags.h"

#include <CLI/CLI.hpp>

namespace zl::cli {
namespace {

constexpr const char* kNoValue = "\n";  // the value of a flag without one

}  // namespace

Flags::Flags(CLI::App& app, Invocation& invocation, const std::string& name,
             const std::string& description, std::function<int()> run)
    : command_(*app.add_subcommand(name, description)) {
  command_.group("Commands");
  command_.callback([&invocation, run = std::move(run)] { invocation.run = run; });
}

std::string Flags::command() const { return command_.get_name(); }

CLI::Option& Flags::add(const std::string& flag, const std::string& type, const std::string& help,
                        const Read& read, bool several) {
  const std::string shown = flag.substr(flag.rfind(',') + 1);  // "--factor" of "-f,--factor"
  const auto read_all = [shown, read, several](const CLI::results_t& given) {
    if (!several && given.size() > 1)
      throw UsageError(str(shown, " is given twice: ", given[0], " and ", given[1]));
    for (const std::string& text : given) {
      if (text.starts_with("--") && text.size() > 2)
        throw UsageError(str(shown, " needs a value, but '", text, "' follows"));
      try {
        read(text);
      } catch (const UsageError&) {
        throw;
      } catch (const InputError& e) {
        throw UsageError(str(shown, ": ", e.what()));
      }
    }
    return true;
  };
  return *command_.add_option(flag, read_all, help)
              ->type_name(type)
              ->group(group_)
              ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
              ->allow_extra_args(false);
}

void Flags::optional_value(const std::string& flag, const std::string& type,
                           const std::string& help, const Read& read) {
  const auto read_name = [read](const std::string& text) {
    require_input(!text.empty(), "the name is empty");
    read(text == kNoValue ? "" : text);
  };
  add(flag, "[" + type + "]", help, read_name, false).expected(0, 1)->default_str(kNoValue);
}

void Flags::name(const std::string& flag, const std::string& type, const std::string& help,
                 std::string& into) {
  value(flag, type, help, [&into](const std::string& text) {
    require_input(!text.empty(), "the name is empty");
    into = text;
  });
}

void Flags::toggle(const std::string& flag, const std::string& help,
                   const std::function<void()>& set) {
  command_.add_flag_callback(flag, set, help)->group(group_)->disable_flag_override();
}

void Flags::rest(const std::string& type, const std::string& help, std::vector<std::string>& into) {
  command_.add_option(type, into, help)->group(group_)->type_name("")->expected(-1);
}

void Flags::footer(const std::string& text) { command_.footer(text); }

}  // namespace zl::cli
