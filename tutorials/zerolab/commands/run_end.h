// How a run of train or compare ends: with a result, or early.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "tutorials/zerolab/report/run_page.h"

namespace zl::cli {

// Prints `result` and then writes the page, so that neither is lost if a file cannot be written.
// Throws OutputError for the first of `problems` or of the page.
void end_run(const std::string& result, RunPage& page, const std::string& json,
             const std::vector<TextFile>& more, std::vector<std::string> problems);

// What the message about a run that ended early says.
struct EarlyEnd {
  bool first = true;  // the process of rank 0, which writes and prints
  std::string where;  // " after step 3 of 9"
  std::string left;   // which files there are, and how to go on; ""
};
// To be called where `e` is caught. Writes the page that shows how far the run came, and rethrows:
// what interrupted the run as InterruptedRun with that sentence, other errors after notes on
// stderr. Only an interrupted process that is not the first returns, with its exit code.
int end_early(const std::exception& e, RunPage& page, const EarlyEnd& end);

}  // namespace zl::cli
