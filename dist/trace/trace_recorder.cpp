#include "dist/trace/trace_recorder.h"

#include "dist/processes/wire.h"
#include "dist/trace/host_id.h"

namespace zl {

TraceRecorder::TraceRecorder(int64_t capacity) : capacity_(capacity) {
  trace_.machine = boot_id();
  trace_.events.reserve(size_t(capacity));
}

void TraceRecorder::begin(const MemoryLedger& device, const MemoryLedger& host,
                          const MemoryLedger* disk) {
  for (int use = 0; use < kMemoryUses; ++use) {
    trace_.at_start[0][size_t(use)] = device.live(MemoryUse(use));
    trace_.at_start[1][size_t(use)] = host.live(MemoryUse(use));
    trace_.at_start[2][size_t(use)] = disk ? disk->live(MemoryUse(use)) : 0;
  }
  recording_ = true;
}

int32_t TraceRecorder::index_of(const char* text) {
  const auto [at, is_new] = indices_.try_emplace(text, int32_t(trace_.texts.size()));
  if (is_new) trace_.texts.emplace_back(text);
  return at->second;
}

void TraceRecorder::see(const Event& e) {
  if (!recording_) return;
  if (int64_t(trace_.events.size()) == capacity_) {
    ++trace_.left_out;
    return;
  }
  trace_.events.push_back({e.nanoseconds, e.bytes, e.count, e.kind, index_of(e.unit),
                           index_of(e.what), index_of(e.detail), index_of(e.group)});
}

std::string encode(const RankTrace& trace) {
  std::string bytes =
      to_bytes(trace.machine, trace.at_start, trace.left_out, uint64_t(trace.texts.size()));
  for (const std::string& text : trace.texts) bytes += to_bytes(text);
  bytes += to_bytes(uint64_t(trace.events.size()));
  for (const TraceEvent& event : trace.events) bytes += to_bytes(event);
  return bytes;
}

RankTrace decode_trace(const std::string& bytes) {
  WireReader wire(bytes);
  RankTrace trace;
  wire.read(trace.machine, trace.at_start, trace.left_out);
  for (uint64_t left = wire.get<uint64_t>(); left > 0; --left)
    trace.texts.push_back(wire.get<std::string>());
  for (uint64_t left = wire.get<uint64_t>(); left > 0; --left)
    trace.events.push_back(wire.get<TraceEvent>());
  return trace;
}

}  // namespace zl
