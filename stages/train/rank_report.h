// The memory and the traffic of one rank in a run.
#pragma once

#include <string>

#include "dist/communication_log.h"
#include "tensor/memory.h"

namespace zl {

struct RankReport {
  // Live bytes after the last step, before anything is freed; peaks of steps 1…n. Of the device and
  // of the host pool.
  MemoryLedger rest, host;
  int64_t init_peak_total = 0;  // [B] highest while the stage was allocated and initialised
  CommunicationLog log;         // of the steps, without evaluations
};

// The report as bytes, to send to another process. decode_report() throws CommunicationError if
// they end too early.
std::string encode(const RankReport& report);
RankReport decode_report(const std::string& bytes);

}  // namespace zl
