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
  WireWriter wire;
  wire.text(trace.machine)
      .put(trace.at_start)
      .put(trace.left_out)
      .put(uint64_t(trace.texts.size()));
  for (const std::string& text : trace.texts) wire.text(text);
  wire.put(uint64_t(trace.events.size()));
  for (const TraceEvent& event : trace.events) wire.put(event);
  return wire.take();
}

RankTrace decode_trace(const std::string& bytes) {
  WireReader wire(bytes);
  RankTrace trace;
  trace.machine = wire.text();
  trace.at_start = wire.get<RankTrace::LiveBytes>();
  trace.left_out = wire.get<int64_t>();
  for (uint64_t left = wire.get<uint64_t>(); left > 0; --left) trace.texts.push_back(wire.text());
  for (uint64_t left = wire.get<uint64_t>(); left > 0; --left)
    trace.events.push_back(wire.get<TraceEvent>());
  return trace;
}

}  // namespace zl
