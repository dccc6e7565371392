// --step: shows a recorded run event by event, forward and back.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "tutorials/recording/recording.h"
#include "tutorials/terminal/terminal.h"

namespace zl::lesson {

using recording::Recording;
using recording::Row;
using recording::Snapshot;

// The learner left with q, or with Ctrl-C and so with exit code 130.
class Left : public std::exception {
 public:
  explicit Left(int code) : code(code) {}
  const int code;
  const char* what() const noexcept override { return "left before the end; nothing was judged"; }
};

// Begins with event `first`, which counts from 0; `mark`, if not empty, is shown beside this event.
// Returns when the learner goes on from the last event; throws Left. Where stdin or stdout is not a
// terminal, prints the legend and a line per event, without colours. On a terminal NO_COLOR leaves
// them out.
void show_events(const Recording& recording, int64_t first = 0, const std::string& mark = "");

enum class Panel { none, memory, communication };
// All ranks at this event, which counts from 0: at most 80 columns of ASCII, in colours if
// `terminal` has them, and 22 lines for 4 ranks and 4 units. All bars of a recording have one
// scale. A panel takes the place of the legend.
std::vector<std::string> picture(const Recording& recording, int64_t event, Panel panel,
                                 const cli::Terminal& terminal = {});

}  // namespace zl::lesson
