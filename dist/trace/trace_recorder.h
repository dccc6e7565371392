// The events of one rank, recorded until the run ends, for dist/trace/chrome_trace.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/events.h"
#include "tensor/memory.h"

namespace zl {

// A recorded event; its texts are indices into RankTrace::texts.
struct TraceEvent {
  int64_t nanoseconds = 0, bytes = 0, count = 0;
  EventKind kind = EventKind::phase;
  int32_t unit = 0, what = 0, detail = 0, group = 0;
};

struct RankTrace {
  using LiveBytes =
      std::array<std::array<int64_t, kMemoryUses>, 3>;  // [B] of the device, the host, the disk
  std::string machine;                                  // ranks that share it share a clock
  LiveBytes at_start{};
  std::vector<std::string> texts;
  std::vector<TraceEvent> events;
  int64_t left_out = 0;  // events that did not fit
};

// A listener of one rank's stream. Not thread-safe: it belongs to the rank's thread.
class TraceRecorder {
 public:
  // Keeps the first `capacity` events, 48 bytes each, in memory allocated here.
  explicit TraceRecorder(int64_t capacity);

  // Records events from now on. The ledgers hold the bytes that are live already; without `disk`
  // nothing is stored there.
  void begin(const MemoryLedger& device, const MemoryLedger& host,
             const MemoryLedger* disk = nullptr);
  void see(const Event& event);
  // Later events are neither recorded nor counted as left out.
  void stop() { recording_ = false; }

  const RankTrace& trace() const { return trace_; }

 private:
  int32_t index_of(const char* text);

  RankTrace trace_;
  int64_t capacity_;
  bool recording_ = false;
  std::unordered_map<const char*, int32_t> indices_;  // a stream keeps one copy of each text
};

// As bytes, for a rank in another process. decode_trace() throws CommunicationError if they end too
// early.
std::string encode(const RankTrace& trace);
RankTrace decode_trace(const std::string& bytes);

}  // namespace zl
