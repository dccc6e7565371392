// zerolab check: its subcommands.
#include <CLI/CLI.hpp>

#include "tutorials/zerolab/check/commands.h"

namespace zl::cli {
namespace {

void add_check(CLI::App& check, Invocation& invocation) {
  add_check_traffic(check, invocation);
  add_check_losses(check, invocation);
}

[[maybe_unused]] const bool check_is_here = have_program("check", add_check);

}  // namespace
}  // namespace zl::cli
