// The zerolab program: reads the command line, runs the command, and turns errors into one sentence
// and an exit code.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "dist/mpi/mpi_transport.h"
#include "dist/nccl/api.h"
#include "tensor/cpu/cpu_backend.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/parse_error.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/removed.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/commands/command.h"
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

// CLI11's help. What it calls "not configurable" are flags that only --help-all lists.
class Help : public CLI::Formatter {
 public:
  Help() {
    label("OPTIONS", "flags");
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "COMMAND …");
  }
  std::string make_group(std::string heading, bool positional,
                         std::vector<const CLI::Option*> flags) const override {
    if (heading == "Options") return "";  // --help, --help-all and --version work everywhere
    const auto hidden = [this](const CLI::Option* o) { return !all_ && !o->get_configurable(); };
    if (std::erase_if(flags, hidden) > 0) shortened_ = true;
    return flags.empty() ? "" : CLI::Formatter::make_group(heading, positional, flags);
  }
  std::string make_option_desc(const CLI::Option* o) const override {
    return shown(o->get_description());
  }
  std::string make_footer(const CLI::App* app) const override {
    return shown(app->get_footer()) + "\n";
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    all_ |= mode != CLI::AppFormatMode::Normal;
    std::string text = CLI::Formatter::make_help(app, name, mode);
    if (shortened_) text += "'" + name + " --help-all' lists all flags and explains more.\n";
    for (size_t at; (at = text.find("\n\n\n")) != text.npos;) text.erase(at, 1);
    return text;
  }

 private:
  std::string shown(const std::string& of_commands) const {
    std::string text = as_called(of_commands);
    const size_t cut = text.find('\f');
    if (cut == text.npos) return text;
    shortened_ |= !all_;
    return all_ ? text.replace(cut, 1, "\n") : text.substr(0, cut);
  }
  mutable bool all_ = false, shortened_ = false;
};

// "--lr" is no flag, but a setting: "; did you mean '--set optimizer.params.lr=VALUE'?", or "".
std::string did_you_mean_setting(std::string flag) {
  Config config;
  std::ranges::replace(flag, '-', '_');
  const std::string name = flag.substr(flag.find_first_not_of('_') % flag.size());
  for (const bool exact : {true, false})
    for (const ConfigKey& key : config_keys(config))
      if (key.member.store && key.member.store("{}") != "" &&  // no block
          (exact ? key.key == name : name.size() > 4 && key.key.ends_with(name)))
        return "; did you mean '--set " + key.path() + "=VALUE'?";
  return "";
}

// Why CLI11 refused a command line, in one sentence.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  const std::string word = unknown_word(app), of = &command == &app ? "" : path_of(command) + " ";
  if (const std::string removed = was_removed(of + word); !word.empty() && !removed.empty())
    return removed;
  const std::string sentence = sentence_of(app, error.what());
  const bool may_be_setting = word.starts_with("--") && sentence.ends_with("'" + word + "'") &&
                              command.get_option_no_throw("--set") != nullptr;
  return sentence + (may_be_setting ? did_you_mean_setting(word) : "");
}

int say(int code, const std::string& sentence) { return cli::say(sentence), code; }

int usage_error(const CLI::App& app, const std::string& sentence) {
  say(kUsage, sentence);
  std::fprintf(stderr, "Try '%s --help'.\n", path_of(chosen(app), true).c_str());
  return kUsage;
}

int run(CLI::App& app, const Invocation& invocation, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return invocation.run();
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, explain(app, error));
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

// Checks that everything printed has arrived; a reader that went away (| head) is no error. Leaves
// MPI after success, and after a check that failed, in which all ranks took part. Without that
// mpirun ends the other ranks, as it should after an error.
int finish(int code) {
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && errno != EPIPE)
    code = say(code == kFine ? int(kNotWritten) : code,
               std::string("stdout cannot be written to: ") + std::strerror(errno));
  if (code != kFine && code != kFailed) return code;
  try {
    finish_mpi();
    return code;
  } catch (const CommunicationError& e) {
    return say(kCommunication, e.what());
  }
}

std::string version() {
  const int nccl = nccl_compiled_for();  // 'doctor' names the library that is found here
  return str("zerolab ", kVersion, " (kernels for ", cpu_architecture(), ", CUDA ", cuda_build(),
             ", ", nccl ? "NCCL " + nccl_version_text(nccl) : "no NCCL", ")");
}

int parse_and_run(int argc, char** argv) {
  CLI::App app(kDescription, called_as());
  Invocation invocation;
  app.formatter(std::make_shared<Help>());
  app.set_help_flag("-h,--help", "this text");
  app.set_help_all_flag("--help-all", "all of it");
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  app.group("Commands");  // which the commands inherit
  for (const auto add : {add_compare, add_train, add_plan, add_config, add_model, add_checkpoint,
                         add_report, add_data, add_programs, add_doctor})
    add(app, invocation);
  add_launch(app, invocation, command_names(app));
  app.footer(kFooter);  // after the commands, because they would inherit it
  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  return finish(run(app, invocation, argc, argv));
}

}  // namespace
}  // namespace zl::cli

int main(int argc, char** argv) {
  using namespace zl::cli;
  if (!has_instructions())
    return say(kUnforeseen, std::string("this program's kernels were compiled for ") +
                                zl::cpu_architecture() +
                                ", but this CPU lacks instructions of it; "
                                "build on this machine, or with -DZEROLAB_ARCH=baseline");
  open_standard_streams();
  // "zerolab --help bench" is bench's help too.
  char** word =
      std::find_if(argv + 1, argv + argc, [](std::string_view w) { return !w.starts_with("-"); });
  if (argc > 1 && word != argv + argc)
    if (const std::string problem = become_program(*word, argv); !problem.empty())
      return say(kUsage, problem);
  watch_signals();
  return parse_and_run(take_launched_program(argc, argv), argv);
}
