// The last calls of one rank and how far each has come. The rank writes and any thread may read, so
// that an error on one rank can say what another did last.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dist/call.h"
#include "tensor/events.h"

namespace zl {

struct FlightRecord {
  Call call;
  const char* phase = "";  // both live as long as the rank's event stream
  const char* unit = "";
  CallState state = CallState::posted;
  int64_t began = 0;    // [ns] steady clock
  int64_t changed = 0;  // [ns] when it entered its state
};

// Of a rank: enough to find where the calls of two ranks differ.
inline constexpr int64_t kAllRecords = 64;

class FlightRecorder {
 public:
  // Records a call and returns its number.
  int64_t begin(const Call& call, const EventStream& events, CallState state);
  void change(int64_t number, CallState state);
  void fail();  // the call in flight ends with an error
  // Copies what a rank in another process recorded: its last calls, of `calls` in all. Older ones
  // are kept.
  void update(const std::vector<FlightRecord>& records, int64_t calls);
  void set_current(bool current) { current_ = current; }

  int64_t calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  std::vector<FlightRecord> recent(int64_t most) const;  // oldest first
  std::optional<FlightRecord> last() const;
  // The call in which the rank is now, waiting for others or moving data.
  std::optional<FlightRecord> in_flight() const;
  // Whether the rank is still heard. Else its state is an old one, of before it died or stopped.
  bool current() const { return current_; }

 private:
  static constexpr int64_t kCapacity = 1024;  // calls

  bool kept(int64_t number) const { return number >= std::max<int64_t>(0, calls_ - kCapacity); }
  FlightRecord& at(int64_t number) { return ring_[size_t(number % kCapacity)]; }
  const FlightRecord& at(int64_t number) const { return ring_[size_t(number % kCapacity)]; }
  void set_state(int64_t number, CallState state);

  mutable std::mutex mutex_;
  std::vector<FlightRecord> ring_ = std::vector<FlightRecord>(kCapacity);
  int64_t calls_ = 0;
  int64_t in_flight_ = -1;  // its number
  std::atomic<bool> current_ = true;
};

std::string human_time(int64_t nanoseconds);  // "3.1 s", "120 ms"

// "rank 1 was last seen in all_reduce 'h.2 gradient' of 96 f32 elements (call 41), left it 3.1 s
// ago"; "rank 1 is in … , waiting for 3.1 s".
std::string last_seen(int rank, const FlightRecorder& flight, int64_t now);
// One line about the rank, then its last calls.
std::string flight_report(int rank, const FlightRecorder& flight, bool ended, int64_t now);

}  // namespace zl
