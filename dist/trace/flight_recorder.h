// The last calls of one rank and how far each came. The rank writes; any thread may read, so that
// an error of one rank can say what another did last.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dist/call.h"
#include "tensor/events.h"

namespace zl {

struct FlightRecord {
  enum class State { posted, waiting, moving, done, failed };
  Call call;
  const char* phase = "";  // both live as long as the rank's event stream
  const char* unit = "";
  State state = State::posted;
  int64_t began = 0;    // [ns] steady clock
  int64_t changed = 0;  // [ns] when it came into its state
};

class FlightRecorder {
 public:
  using State = FlightRecord::State;

  explicit FlightRecorder(int64_t capacity = 1024) : capacity_(capacity) {
    ring_.resize(
        size_t(capacity));  // so that its pages are touched now, not call by call while ranks train
    ring_.clear();
  }

  // Notes a call and returns its number.
  int64_t begin(const Call& call, const EventStream& events, State state);
  void change(int64_t number, State state);
  void fail();  // the call under way ends with an error
  // Takes over what the rank itself recorded, in another process: its last calls and the number of
  // all.
  void replace(const std::vector<FlightRecord>& records, int64_t calls);

  int64_t calls() const;
  std::vector<FlightRecord> recent(int64_t most) const;  // oldest first
  std::optional<FlightRecord> last() const;
  // The call in which the rank is now, waiting for others or moving data.
  std::optional<FlightRecord> under_way() const;

 private:
  FlightRecord& at(int64_t number) { return ring_[size_t(number % capacity_)]; }
  const FlightRecord& at(int64_t number) const { return ring_[size_t(number % capacity_)]; }

  const int64_t capacity_;
  mutable std::mutex mutex_;
  std::vector<FlightRecord> ring_;
  int64_t calls_ = 0;
  int64_t under_way_ = -1;  // its number
};

int64_t steady_nanoseconds();
std::string human_time(int64_t nanoseconds);  // "3.1 s", "120 ms"

// "rank 1 was last seen in all_reduce 'h.2 gradient' of 96 f32 elements (call 41), left it 3.1 s
// ago".
std::string last_seen(int rank, const FlightRecorder& flight, int64_t now);
// A line on the rank, then its last calls.
std::string flight_report(int rank, const FlightRecorder& flight, bool ended, int64_t now);

}  // namespace zl
