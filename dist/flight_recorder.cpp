#include "dist/flight_recorder.h"

#include <cstdio>

#include "tensor/error.h"

namespace zl {

std::string human_time(int64_t nanoseconds) {
  const double seconds = double(nanoseconds) * 1e-9;
  char text[32];
  if (seconds >= 1)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else if (seconds >= 1e-3)
    std::snprintf(text, sizeof text, "%.0f ms", seconds * 1e3);
  else
    std::snprintf(text, sizeof text, "%.0f us", seconds * 1e6);
  return text;
}

int64_t FlightRecorder::begin(const Call& call, const EventStream& events, CallState state) {
  const int64_t now = steady_nanoseconds();
  std::lock_guard lock(mutex_);
  at(calls_) = {call, events.phase(), events.unit(), state, now, now};
  if (state != CallState::posted) in_flight_ = calls_;
  return calls_++;
}

void FlightRecorder::set_state(int64_t number, CallState state) {
  if (state == CallState::waiting || state == CallState::moving)
    in_flight_ = number;
  else if (in_flight_ == number)
    in_flight_ = -1;
  if (!kept(number)) return;
  at(number).state = state;
  at(number).changed = steady_nanoseconds();
}

void FlightRecorder::change(int64_t number, CallState state) {
  std::lock_guard lock(mutex_);
  set_state(number, state);
}

void FlightRecorder::fail() {
  std::lock_guard lock(mutex_);
  set_state(in_flight_, CallState::failed);
}

void FlightRecorder::update(const std::vector<FlightRecord>& records, int64_t calls) {
  std::lock_guard lock(mutex_);
  calls_ = calls;
  in_flight_ = -1;
  int64_t number = calls - int64_t(records.size());
  for (const FlightRecord& record : records) {
    if (record.state == CallState::waiting || record.state == CallState::moving)
      in_flight_ = number;
    at(number++) = record;
  }
}

std::vector<FlightRecord> FlightRecorder::recent(int64_t most) const {
  std::lock_guard lock(mutex_);
  std::vector<FlightRecord> records;
  for (int64_t i = std::max<int64_t>(0, calls_ - std::min(most, kCapacity)); i < calls_; ++i)
    records.push_back(at(i));
  return records;
}

std::optional<FlightRecord> FlightRecorder::last() const {
  const std::vector<FlightRecord> one = recent(1);
  return one.empty() ? std::nullopt : std::optional(one[0]);
}

std::optional<FlightRecord> FlightRecorder::in_flight() const {
  std::lock_guard lock(mutex_);
  if (!kept(in_flight_)) return {};
  return at(in_flight_);
}

namespace {

std::string where(const FlightRecord& record) {
  std::string text;
  if (*record.phase) text += str(", phase ", record.phase);
  if (*record.unit) text += str(", unit ", record.unit);
  return text;
}

// How long a rank waits is known only while it is heard.
std::string state_of(const FlightRecord& record, int64_t now, bool current) {
  const std::string age = human_time(now - record.changed);
  switch (record.state) {
    case CallState::posted: return str("posted ", age, " ago, not met yet");
    case CallState::waiting: return current ? str("waiting for ", age) : "waiting";
    case CallState::moving: return current ? str("moving data for ", age) : "moving data";
    case CallState::done:
      return str("done in ", human_time(record.changed - record.began), ", ", age, " ago");
    case CallState::failed:
      return str("failed after ", human_time(record.changed - record.began), ", ", age, " ago");
  }
  return "?";
}

}  // namespace

std::string last_seen(int rank, const FlightRecorder& flight, int64_t now) {
  const bool current = flight.current();
  if (const auto record = flight.in_flight())
    return str("rank ", rank, current ? " is in " : " was last seen in ", describe(record->call),
               where(*record), ", ", state_of(*record, now, current));
  const auto record = flight.last();
  if (!record) return str("rank ", rank, " has made no call yet");
  const char* left = record->state == CallState::posted ? ", posted it " : ", left it ";
  return str("rank ", rank, " was last seen in ", describe(record->call), where(*record), left,
             human_time(now - record->changed), " ago");
}

std::string flight_report(int rank, const FlightRecorder& flight, bool ended, int64_t now) {
  const bool current = flight.current();
  std::string text =
      str("rank ", rank, ": ", flight.calls(), flight.calls() == 1 ? " call" : " calls",
          ended                ? ", has ended\n"
          : !current           ? ", not heard any more\n"
          : flight.in_flight() ? "\n"
                               : ", now outside any call\n");
  for (const FlightRecord& record : flight.recent(6))
    text += str("  ", describe(record.call, true), where(record), ": ",
                state_of(record, now, current), "\n");
  return text;
}

}  // namespace zl
