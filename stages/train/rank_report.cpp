#include "stages/train/rank_report.h"

#include "dist/processes/wire.h"

namespace zl {

std::string encode(const RankReport& report) {
  WireWriter wire;
  wire.put(report.rest).put(report.host).put(report.disk).put(report.init_peak_total);
  wire.put(report.moves);
  wire.put(uint64_t(report.log.rows().size()));
  for (const auto& [key, traffic] : report.log.rows())
    wire.put(key.collective).put(key.purpose).text(key.group).put(traffic);
  wire.put(uint64_t(report.log.times().size()));
  for (const auto& [collective, time] : report.log.times()) wire.put(collective).put(time);
  return wire.take();
}

RankReport decode_report(const std::string& bytes) {
  WireReader wire(bytes);
  RankReport report{.rest = wire.get<MemoryLedger>(),
                    .host = wire.get<MemoryLedger>(),
                    .disk = wire.get<MemoryLedger>(),
                    .init_peak_total = wire.get<int64_t>(),
                    .log = {},
                    .moves = wire.get<MoveLog>()};
  CommunicationLog::Rows rows;
  for (uint64_t left = wire.get<uint64_t>(); left > 0; --left) {
    const auto collective = wire.get<Collective>();
    const auto purpose = wire.get<Purpose>();
    std::string group = wire.text();
    rows[{collective, purpose, std::move(group)}] = wire.get<Traffic>();
  }
  CommunicationLog::Times times;
  for (uint64_t left = wire.get<uint64_t>(); left > 0; --left) {
    const auto collective = wire.get<Collective>();
    times[collective] = wire.get<TimeSpent>();
  }
  report.log = {std::move(rows), std::move(times)};
  return report;
}

}  // namespace zl
