// The subcommands of 'zerolab bench'. Each makes one JSON document of its results, and makes the
// text for people from that document.
#pragma once

#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/commands/command.h"

namespace zl::cli {

void add_bench_comm(CLI::App& bench, Invocation& invocation);
void add_bench_kernels(CLI::App& bench, Invocation& invocation);
void add_bench_machine(CLI::App& bench, Invocation& invocation);
void add_bench_step(CLI::App& bench, Invocation& invocation);

// Prints the document, or the text that `text` makes from it.
template <class Json>
void print_results(const Json& results, bool as_json, std::string (*text)(const Json&)) {
  std::fputs((as_json ? json_text(results) : text(results)).c_str(), stdout);
}

}  // namespace zl::cli
