// A timeline of all ranks in the format that ui.perfetto.dev and chrome://tracing open.
//
// Each rank is a process. Its track "compute" shows phases, in them the passes of units, and in
// those kernels. Its track "communication" shows collectives from entering to leaving, each with
// the wait for the last rank, and arrows lead from that rank to the others. Counters show memory by
// use, of the device, the host and the disk, and the bytes sent and moved so far. Sends and
// receives have no arrows. Times are the host's. Format: "Trace Event Format", JSON object form;
// https://perfetto.dev/docs/getting-started/other-formats
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "dist/trace/trace_recorder.h"

namespace zl {

// Converts each rank's times to the clock of rank 0. Ranks of one machine share a clock. The clock
// of another machine is set so that the median collective ends on both at the same time, which is
// accurate to about the latency of one message.
void align_clocks(std::vector<RankTrace>& ranks);

// Writes the JSON piece by piece; ranks in order. Times begin at 0.
void write_chrome_trace(const std::vector<RankTrace>& ranks,
                        const std::function<void(std::string_view)>& write);

}  // namespace zl
