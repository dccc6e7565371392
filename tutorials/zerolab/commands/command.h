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
inline constexpr const char* kBenchDescription =
    "speed of the machine, collectives, kernels and steps";
// bench is zerolab-bench, an executable beside zerolab; two files define these two functions.
void add_bench(CLI::App& app, Invocation& invocation);
// Called when the first argument but -h and --help is "bench". In zerolab it runs zerolab-bench
// with these arguments in this process, and returns only a sentence that says why it cannot. In
// zerolab-bench: "".
std::string become_bench(char** arguments);
void add_checkpoint(CLI::App& app, Invocation& invocation);
void add_report(CLI::App& app, Invocation& invocation);
void add_exercise(CLI::App& app, Invocation& invocation);
void add_launch(CLI::App& app, Invocation& invocation,
                std::vector<std::string> commands);  // all of the program's others

}  // namespace zl::cli
