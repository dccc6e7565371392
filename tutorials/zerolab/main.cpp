// The zerolab program: reads the command line, runs the command, and turns errors into one sentence
// and an exit code.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "dist/mpi/library.h"
#include "dist/nccl/errors.h"
#include "tensor/cpu/cpu_backend.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/nearest.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/removed.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/commands/command.h"
#include "tutorials/zerolab/commands/launch.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

constexpr const char* kDescription =
    "zerolab: data-parallel training from scratch. DDP and ZeRO stages 1, 2 and 3, compared bit by "
    "bit.";
constexpr const char* kFooter = R"('zerolab COMMAND --help' explains a command.

Start here:
  zerolab doctor
  zerolab train --model tiny --steps 20
  zerolab train --stage zero3 --ranks 4 --out runs/first

Exit codes: 0 fine, 1 a check failed, 2 usage or configuration, 3 out of memory, 4 communication,
            70 unforeseen, 74 an output could not be written, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP)";

// Help without CLI11's notes on types and without double empty lines.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(30); }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = "\nUsage: " + (name.empty() ? app->get_name() : name);
    const bool commands = !app->get_subcommands([](const CLI::App*) { return true; }).empty();
    for (const CLI::Option* option :
         app->get_options([](const CLI::Option* o) { return o->get_positional(); }))
      usage += " " + make_option_usage(option);
    if (app->get_name() == "launch") return usage + kLaunchUsage;  // a program, with its own flags
    return usage + (commands ? " COMMAND …\n" : " [flags]\n");
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, name, mode);
    for (size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n"))
      text.erase(at, 1);
    return text;
  }
};

// "zerolab train": the commands that were recognised.
std::string path_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return app.get_name() + (chosen.empty() ? "" : " " + path_of(*chosen.front()));
}

const CLI::App& deepest(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : deepest(*chosen.front());
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Why CLI11 refused a command line, in one sentence.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = deepest(app);
  const bool root = &command == &app;
  const std::string where = root ? app.get_name() : path_of(app).substr(app.get_name().size() + 1);
  const auto commands = command_names(command), rest = app.remaining(true);
  if (!rest.empty()) {
    const std::string word = rest.front().substr(0, rest.front().find('=')),
                      removed = was_removed(root ? word : where + " " + word);
    if (!removed.empty()) return removed;
    if (word.starts_with("-"))
      return where + " has no flag '" + word + "'" + did_you_mean(word, flag_names(command));
    if (!commands.empty())
      return (root ? "there is" : where + " has") + std::string(" no command '") + word + "'" +
             did_you_mean(word, commands);
    return where + " takes no argument '" + rest.front() + "'";
  }
  const std::string text = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty()) {
    std::string all;
    for (const std::string& name : commands) all += (all.empty() ? "" : ", ") + name;
    return where + " needs a command: " + all;
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.ends_with(" missing"))
    return text.substr(0, text.find(':')) + " needs a value";
  if (text.ends_with("disallowed flag override"))
    return "--" + text.substr(0, text.find(' ')) + " takes no value";
  return text;
}

// --help works in every command, so no list names it.
void hide_help(CLI::App& app) {
  app.get_help_ptr()->group("");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    hide_help(*command);
}

int say(int code, const std::string& sentence) {
  std::fprintf(stderr, "zerolab: %s\n", printable(sentence).c_str());
  return code;
}

int usage_error(const CLI::App& app, const std::string& sentence) {
  say(kUsage, sentence);
  std::fprintf(stderr, "Try '%s --help'.\n", path_of(app).c_str());
  return kUsage;
}

int run(const CLI::App& app, const Invocation& invocation) {
  try {
    return invocation.run();
  } catch (const UsageError& e) {
    return usage_error(app, e.what());
  } catch (...) {
    const Failure failure = failure_of(std::current_exception(), interrupt_signal());
    std::fflush(stdout);
    say(failure.code, failure.text);
    if (failure.code == kCommunication)
      std::fputs(printable(last_failure_report()).c_str(), stderr);
    return failure.code;
  }
}

// Leaves MPI after success, and after a check that failed, in which all ranks took part. Without
// that mpirun ends the other ranks, as it should after an error.
int leave_mpi(int code) {
  if (code != kFine && code != kFailed) return code;
  try {
    finish_mpi();
    return code;
  } catch (const CommunicationError& e) {
    return say(kCommunication, e.what());
  }
}

// Checks that everything printed has arrived. A reader that went away (| head) is no error.
int finish(int code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || errno == EPIPE) return code;
  return say(code == kFine ? int(kNotWritten) : code,
             std::string("stdout cannot be written to: ") + std::strerror(errno));
}

std::string version() {
  const Gpus gpus = find_gpus(0);
  const int nccl = nccl_compiled_for();  // 'doctor' names the library that is found here
  return str("zerolab ", kVersion, " (kernels for ", cpu_architecture(), ", ",
             gpus.built_in ? "CUDA " + gpus.toolkit : "no CUDA", ", ",
             nccl ? "NCCL " + nccl_version_text(nccl) : "no NCCL", ")");
}

int parse_and_run(int argc, char** argv) {
  CLI::App app(kDescription, "zerolab");
  Invocation invocation;
  app.formatter(std::make_shared<Help>());
  app.set_help_flag("-h,--help", "this text");
  app.set_version_flag("--version", version)->group("");
  app.require_subcommand(1);
  add_compare(app, invocation);
  add_train(app, invocation);
  add_plan(app, invocation);
  add_config(app, invocation);
  add_model(app, invocation);
  add_checkpoint(app, invocation);
  add_report(app, invocation);
  add_data(app, invocation);
  add_programs(app, invocation);
  add_doctor(app, invocation);
  add_launch(app, invocation, command_names(app));
  app.footer(kFooter);  // after the commands, because they would inherit it
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    command->group("Commands");
  hide_help(app);
  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return finish(app.exit(success));
  } catch (const CLI::ParseError& error) {
    return usage_error(app, explain(app, error));
  } catch (const InputError& error) {
    return usage_error(app, error.what());
  }
  return leave_mpi(finish(run(app, invocation)));
}

// The first argument but -h and --help: "zerolab --help bench" is bench's help too.
std::string first_word(int argc, char** argv) {
  const auto is = [&](int i, std::string_view word) { return i < argc && argv[i] == word; };
  int first = 1;
  while (is(first, "-h") || is(first, "--help")) ++first;
  return first < argc ? argv[first] : "";
}

}  // namespace
}  // namespace zl::cli

int main(int argc, char** argv) {
  using namespace zl::cli;
  const std::string missing = missing_instructions();
  if (!missing.empty())
    return say(kUnforeseen, std::string("this program's kernels were compiled for ") +
                                zl::cpu_architecture() + ", but this CPU has no " + missing +
                                "; build on this machine, or with -DZEROLAB_ARCH=baseline");
  open_standard_streams();
  if (const std::string problem = become_program(first_word(argc, argv), argv); !problem.empty())
    return say(kUsage, problem);
  watch_signals();
  return parse_and_run(take_launched_program(argc, argv), argv);
}
