#include "tutorials/zerolab/commands/run_end.h"

#include <cstdio>

#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/printable.h"

namespace zl::cli {

void end_run(const std::string& result, RunPage& page, const std::string& json,
             const std::vector<TextFile>& more, std::vector<std::string> problems) {
  std::fputs(result.c_str(), stdout);
  std::fflush(stdout);
  try {
    page.write(json, more);
  } catch (const OutputError& e) {
    problems.push_back(e.what());
  }
  for (const std::string& problem : problems)
    if (!problem.empty()) throw OutputError(problem);
}

int end_early(const std::exception& e, RunPage& page, const EarlyEnd& end) {
  const bool interrupted = dynamic_cast<const Interrupted*>(&e) != nullptr;
  if (interrupted) interrupted_elsewhere();
  const int signal = interrupt_signal();
  if (interrupted && !end.first) return 128 + signal;
  std::string text = interrupted ? interrupted_by(signal) + end.where : e.what();
  const bool shown =
      page.write_failure(text, is_interrupt(e, signal) ? RunEnd::interrupted : RunEnd::failed);
  const std::string page_note = shown ? page.file() + " shows the steps so far" : "";
  for (const std::string& note : {end.left, page_note}) {
    if (note.empty()) continue;
    if (!interrupted) std::fprintf(stderr, "note: %s\n", printable(note).c_str());
    text += "; " + note;
  }
  if (!interrupted) throw;
  throw InterruptedRun(text + (end.left.empty() && !shown ? "; nothing was kept" : ""));
}

}  // namespace zl::cli
