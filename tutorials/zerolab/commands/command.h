// The commands of the zerolab program. Each adds its subcommand; choosing one on the command line
// sets Invocation::run.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace zl::cli {

struct Invocation {
  std::function<int()> run;  // returns the exit code; what it throws becomes one in main.cpp
};

void add_train(CLI::App& app, Invocation& invocation);
void add_compare(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);
void add_model(CLI::App& app, Invocation& invocation);
void add_config(CLI::App& app, Invocation& invocation);
void add_data(CLI::App& app, Invocation& invocation);
void add_checkpoint(CLI::App& app, Invocation& invocation);
void add_report(CLI::App& app, Invocation& invocation);
// bench and exercise, which are executables beside zerolab (start_program.cpp).
void add_programs(CLI::App& app, Invocation& invocation);
// The program that has the command `name`, such as zerolab-bench, runs with these arguments in this
// process. Returns "" if `name` is no such command, or is one of this program; otherwise a sentence
// that says why its program cannot run.
std::string become_program(const std::string& name, char** arguments);
// Called by the file that defines bench or exercise, where it is part of the executable. `add` adds
// the subcommands.
bool have_program(const std::string& name, void (*add)(CLI::App& command, Invocation& invocation));
void add_launch(CLI::App& app, Invocation& invocation,
                std::vector<std::string> commands);  // all of the program's others
// Removes the program that `zerolab launch` starts, and its arguments, from the command line and
// keeps them for launch; call it before any flag is read. Returns how many words are left.
int take_launched_program(int argc, char** argv);

}  // namespace zl::cli
