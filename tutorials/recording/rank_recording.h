// What one rank had at each event, compactly: texts once, cells and memory where they change.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/events.h"
#include "tensor/memory.h"

namespace zl::recording {

// A row of a table about one rank: a name, and what the rank has there, as {"h.0", "# + /"}.
using Row = std::pair<std::string, std::string>;

// Phases, unit events, and begins and ends of collectives of all ranks: two ranks record the same
// events in the same order.
inline bool is_collective(const Event& event) {
  return event.kind >= EventKind::collective_begin && event.what != std::string_view("send") &&
         event.what != std::string_view("receive");
}
inline bool is_recorded(const Event& event) {
  const bool at_point =
      event.kind == EventKind::collective_begin || event.kind == EventKind::collective_end;
  return event.kind == EventKind::phase || event.kind == EventKind::unit ||
         (at_point && is_collective(event));
}

inline constexpr int kSeries = 2 * kMemoryUses;  // the uses of the device pool, then of the host's
using LiveBytes = std::array<int64_t, kSeries>;  // [B]

struct RankRecording {
  struct UnitSize {  // [n] padded: of the full unit, and of one rank's shard
    int64_t elements = 0, shard = 0;
  };
  struct Entry {  // an event; texts are indices into `texts`
    EventKind kind = EventKind::phase;
    int32_t phase = 0, unit = 0, what = 0, detail = 0, method = 0;
    int64_t nanoseconds = 0;          // of the rank's clock
    int64_t bytes = 0, elements = 0;  // of a collective, as in Event
  };
  struct Cell {  // from this event on, the row has this text
    int32_t event = 0, row = 0, text = 0;
  };
  struct Live {  // after this event
    int32_t event = 0, series = 0;
    int64_t bytes = 0;
  };
  // Since the event before, the device total was higher than at both: the first instant at which it
  // was highest.
  struct Peak {
    int32_t event = 0;
    LiveBytes bytes{};
  };
  // A collective: its two events, -1 where it began before or ended after the recording. When the
  // rank began to wait for it, when the last rank had begun it, when its data had moved [ns].
  struct Call {
    int32_t begin = -1, end = -1;
    int64_t waits = 0, met = 0, moved = 0;
  };

  std::string machine;        // ranks that share it share a clock
  int64_t step = 0;           // of a training run, from 1
  int64_t left_out = 0;       // events that were not recorded
  int64_t micro_batches = 0;  // of the step
  int64_t left_out_micro_batches = 0;
  std::vector<std::string> texts;  // the first is ""
  std::vector<std::string> rows;   // names
  std::vector<UnitSize> units;     // of the rows, where they are units
  std::vector<Entry> events;
  std::vector<Cell> cells;  // all rows at event 0
  std::vector<Live> live;   // all series at event 0
  std::vector<Peak> peaks;
  std::vector<Call> calls;

  const std::string& text(int32_t index) const { return texts[size_t(index)]; }
};

// As bytes, for a rank in another process. decode() throws CommunicationError if they end too
// early.
std::string encode(const RankRecording& recording);
RankRecording decode_recording(const std::string& bytes);

// A listener of one rank's stream. Not thread-safe: it belongs to the rank's thread.
class RankRecorder {
 public:
  // `host` may be null. The memories must live until the last see().
  RankRecorder(const Memory* device, const Memory* host) : device_(device), host_(host) {}

  // To be called with every event. Adds those that it records, with what `rows` returns and the
  // function of the stage that the event belongs to.
  void see(const Event& event, const std::function<std::vector<Row>()>& rows,
           const char* method = "");
  // Says of the event added last that `method` runs after it.
  void set_method_of_last(const char* method);
  void forget_method(const char* method);  // no event has run it
  // While off, events are counted as left out.
  void keep(bool on) { keeps_ = on; }

  RankRecording& recording() { return recording_; }
  const RankRecording& recording() const { return recording_; }
  // The recording, with the calls that are still in flight.
  RankRecording finish() const;

 private:
  struct OpenCall {
    const char *what, *detail, *group;
    RankRecording::Call call;
  };
  int32_t index_of(const std::string& text);
  LiveBytes live() const;
  void note_peak();
  void add_memory(int32_t event);
  void add_rows(int32_t event, const std::vector<Row>& rows);
  void follow_call(const Event& event, int32_t entry);

  const Memory *device_, *host_;
  RankRecording recording_;
  std::unordered_map<std::string, int32_t> indices_;
  std::vector<OpenCall> open_;
  std::vector<int32_t> row_texts_;  // of the last event
  LiveBytes last_{}, highest_{};    // at the last event; highest device total since
  int64_t last_total_ = 0, highest_total_ = 0;
  bool keeps_ = true;
};

}  // namespace zl::recording
