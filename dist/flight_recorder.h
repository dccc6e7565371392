// The last calls of one rank and how far each has come. The rank writes and any thread may read, so
// that an error on one rank can say what another did last. And the texts of such errors: which rank
// calls what, and which one is missing.
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

// What a rank has recorded of one of its calls.
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

// Of one rank, for as long as its run. Numbers of calls count from 0.
class FlightRecorder {
 public:
  // Records a call and returns its number.
  int64_t begin(const Call& call, const EventStream& events, CallState state);
  // Of a call that has been overwritten since, only whether the rank is in it. One that is done
  // stays so.
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

// ---- ranks that do not make the same calls in time --------------------------------------------

using Flights = std::vector<const FlightRecorder*>;  // by rank

// "rank 2 calls … while ranks 0 and 1 call …; all ranks must …"; "" if all calls are the same. By
// rank; null: not known, or not in the group.
std::string mismatch_text(const std::vector<const Call*>& calls);
// That of the first collective in which the recorded calls of two ranks differ. A rank that has
// not come to it yet is not named.
std::string first_mismatch_text(const Flights& flights);
// Whether a rank has come to `waiting`, in which `rank` is. It may have left a collective already,
// or not wait for it yet.
bool has_come(const FlightRecorder& flight, const Call& waiting, int rank);
// A send and a receive that met: why they do not match; "" if they do.
std::string mismatch_text(int rank, const Call& call, int other_rank, const Call& other);

// Which ranks are missing in a call that has waited longer than `timeout` [ns]; "" if none has.
// Waits count from `since` [ns] at the earliest.
std::string overdue_text(const Flights& flights, int64_t timeout, int64_t since);

// The call in which each rank waits for others to come; none: it does not wait.
using Waits = std::vector<std::optional<Call>>;

// Why ranks wait forever: for one that makes no more calls (a bit in `ended`), or for each other in
// a circle, such as one in a send while the other is in a collective; "" if none does. Calls must
// be those of one moment. The text names all ranks that wait for an ended one, and two of a circle.
std::string stuck_text(const Waits& waits, uint64_t ended, const Flights& flights);

}  // namespace zl
