// The memory and the traffic of one rank in a run.
#pragma once

#include <string>

#include "dist/communication_log.h"
#include "tensor/memory.h"
#include "tensor/moves.h"

namespace zl {

struct RankReport {
  // Live bytes after the last step, before anything is freed; peaks of steps 1…n. Of the device,
  // the host and the disk pool.
  MemoryLedger rest, host, disk;
  const MemoryLedger& of(Pool pool) const {
    return pool == Pool::device ? rest : pool == Pool::host ? host : disk;
  }
  int64_t init_peak_total = 0;  // [B] highest while the stage was allocated and initialised
  CommunicationLog log;         // of the steps, without evaluations
  MoveLog moves;                // of the steps, without evaluations and saves of checkpoints
};

// The report as bytes, to send to another process. decode_report() throws CommunicationError if
// they end too early.
std::string encode(const RankReport& report);
RankReport decode_report(const std::string& bytes);

}  // namespace zl
