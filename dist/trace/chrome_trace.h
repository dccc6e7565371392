// A timeline of all ranks in the format that ui.perfetto.dev and chrome://tracing open.
//
// A rank is a process. Its track "compute" holds phases, in them the passes of units, in them
// kernels; "communication" holds collectives from entering to leaving, and in each the wait for the
// last rank, from which an arrow leads to every other one. Counters hold memory by use. Sends and
// receives are drawn and not joined. Times are the host's. Format: "Trace Event Format", JSON
// object form; https://perfetto.dev/docs/getting-started/other-formats
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "dist/trace/trace_recorder.h"

namespace zl {

// Adds to each rank's times what makes its clock that of rank 0. Ranks of one machine share a
// clock. That of another machine is set so that the median collective ends on both at once, which
// is right to about the time that one message takes.
void align_clocks(std::vector<RankTrace>& ranks);

// Writes the JSON piece by piece; ranks in order. Times begin at 0.
void write_chrome_trace(const std::vector<RankTrace>& ranks,
                        const std::function<void(std::string_view)>& write);

}  // namespace zl
