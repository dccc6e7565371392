#include "dist/flight_recorder.h"

#include <bit>
#include <cstdio>
#include <map>
#include <tuple>

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
  if (kept(number) && at(number).state == CallState::done) return;
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

// ---- ranks that do not make the same calls in time --------------------------------------------

bool has_come(const FlightRecorder& flight, const Call& waiting, int rank) {
  if (!waiting.point_to_point())
    return std::ranges::any_of(flight.recent(kAllRecords), [&](const FlightRecord& record) {
      return !record.call.point_to_point() && record.call.group == waiting.group &&
             record.call.sequence >= waiting.sequence;
    });
  const Call call = flight.in_flight().value_or(FlightRecord{}).call;
  return call.point_to_point() && call.kind != waiting.kind && call.group == waiting.group &&
         call.sequence == waiting.sequence && call.peer_of_run() == rank;
}

namespace {

// [ns] A transport that waits for its data itself can say more than a late call that another thread
// finds.
constexpr int64_t kSlack = 500'000'000;

// Whether a rank takes part in the call, or is the other side of a send or receive.
bool needs(const Call& call, int rank) {
  return call.point_to_point() ? call.peer_of_run() == rank : call.group.has(rank);
}

// Whether calls meet, so that the ranks in them do not wait for each other.
bool meet(const Call& a, const Call& b) {
  return !a.point_to_point() && !b.point_to_point() && a.group == b.group;
}

std::string late_text(const Flights& flights, int rank, const Call& waiting, int64_t timeout) {
  uint64_t missing = 0;
  int ranks = 0;
  std::string states;
  for (int r = 0; r < int(flights.size()); ++r) {
    if (!needs(waiting, r)) continue;
    ++ranks;
    if (has_come(*flights[size_t(r)], waiting, rank)) continue;
    missing |= uint64_t(1) << r;
    states += "; " + last_seen(r, *flights[size_t(r)], steady_nanoseconds());
  }
  const std::string text =
      missing == 0 ? str("rank ", rank, " in ")
      : waiting.point_to_point()
          ? str("rank ", waiting.peer_of_run(), " did not match ")
          : str("only ", ranks - std::popcount(missing), " of ", ranks, " ranks came to ");
  return str(text, describe(waiting), missing == 0 ? ": the transfer was not done" : "", " within ",
             human_time(timeout), states, ". If ", missing == 0 ? "the ranks" : ranks_text(missing),
             std::popcount(missing) == 1 ? " is" : " are",
             " only slow, raise --timeout (0 waits forever)");
}

}  // namespace

std::string mismatch_text(const std::vector<const Call*>& calls) {
  struct Side {
    const Call* call = nullptr;
    uint64_t ranks = 0;
  } first, second;
  for (size_t r = 0; r < calls.size(); ++r) {
    if (!calls[r]) continue;
    Side& side = !first.call || *calls[r] == *first.call ? first : second;
    if (!side.call) side.call = calls[r];
    if (*calls[r] == *side.call) side.ranks |= uint64_t(1) << r;
  }
  if (!second.call) return "";
  if (std::popcount(first.ranks) >= std::popcount(second.ranks)) std::swap(first, second);
  const bool reduction =
      first.call->kind == second.call->kind && first.call->reduction != second.call->reduction;
  const auto text = [&](const Side& side) {
    return str(ranks_text(side.ranks), std::popcount(side.ranks) == 1 ? " calls " : " call ",
               describe(*side.call, reduction));
  };
  return str(text(first), " while ", text(second),
             "; all ranks must make the same calls in the same order");
}

std::string first_mismatch_text(const Flights& flights) {
  std::vector<std::vector<FlightRecord>> records;  // by rank
  // By group and number; in each the calls of the ranks that have come to it.
  std::map<std::tuple<int, uint64_t, int64_t>, std::vector<const Call*>> collectives;
  for (size_t r = 0; r < flights.size(); ++r)
    for (const FlightRecord& record : records.emplace_back(flights[r]->recent(kAllRecords))) {
      const Call& call = record.call;
      if (call.point_to_point()) continue;
      auto& calls = collectives[{call.group.number, call.group.ranks, call.sequence}];
      calls.resize(flights.size());
      calls[r] = &call;
    }
  for (const auto& [number, calls] : collectives)
    if (std::string text = mismatch_text(calls); !text.empty()) return text;
  return "";
}

std::string mismatch_text(int rank, const Call& call, int other_rank, const Call& other) {
  if (call.dtype == other.dtype && call.count == other.count && call.sequence == other.sequence &&
      call.name == other.name)
    return "";
  return str("rank ", rank, " calls ", describe(call), " while rank ", other_rank, " calls ",
             describe(other),
             "; between two ranks the first send matches the first receive, with the same name, "
             "type and count");
}

std::string overdue_text(const Flights& flights, int64_t timeout, int64_t since) {
  const int64_t now = steady_nanoseconds();
  if (timeout <= 0) return "";
  for (size_t r = 0; r < flights.size(); ++r) {
    const auto record = flights[r]->in_flight();
    if (!record || !record->call.has_deadline) continue;
    const int64_t limit = timeout + (record->state == CallState::moving ? kSlack : 0);
    if (now - std::max(record->changed, since) > limit)
      return late_text(flights, int(r), record->call, timeout);
  }
  return "";
}

namespace {

std::string ended_text(int ended, const Waits& waits, const Flights& flights) {
  std::vector<std::pair<Call, uint64_t>> calls;  // and the ranks that wait in them
  for (size_t r = 0; r < waits.size(); ++r) {
    if (!waits[r] || !needs(*waits[r], ended)) continue;
    auto same = std::ranges::find(calls, *waits[r], &std::pair<Call, uint64_t>::first);
    if (same == calls.end()) same = calls.insert(same, {*waits[r], 0});
    same->second |= uint64_t(1) << r;
  }
  if (calls.empty()) return "";
  std::string text = str("rank ", ended, " has ended");
  for (const auto& [call, ranks] : calls)
    text += str(&call == &calls.front().first ? ", while " : " and ", ranks_text(ranks),
                std::popcount(ranks) == 1 ? " waits" : " wait", " for it in ", describe(call));
  return text + str("; ", last_seen(ended, *flights[size_t(ended)], steady_nanoseconds()),
                    ". Its own output may say why it ended; if it shows no error, the rank "
                    "probably left a loop earlier than the others");
}

// The ranks for which a rank waits, and which wait elsewhere.
uint64_t waits_for(const Waits& waits, size_t rank) {
  uint64_t others = 0;
  for (size_t r = 0; r < waits.size(); ++r)
    if (waits[rank] && waits[r] && r != rank && needs(*waits[rank], int(r)) &&
        !meet(*waits[rank], *waits[r]))
      others |= uint64_t(1) << r;
  return others;
}

// The first rank that waits for itself, through another one.
std::string circle_text(const Waits& waits) {
  std::vector<uint64_t> all;  // by rank: those for which it waits, also through others
  for (size_t r = 0; r < waits.size(); ++r) all.push_back(waits_for(waits, r));
  for (size_t via = 0; via < waits.size(); ++via)
    for (uint64_t& ranks : all)
      if (ranks >> via & 1) ranks |= all[via];
  for (size_t rank = 0; rank < waits.size(); ++rank)
    for (size_t other = 0; other < waits.size(); ++other)
      if (waits_for(waits, rank) >> other & all[other] >> rank & 1)
        return str("rank ", rank, " waits in ", describe(*waits[rank]), " while rank ", other,
                   " waits in ", describe(*waits[other]), "; neither can go on");
  return "";
}

}  // namespace

std::string stuck_text(const Waits& waits, uint64_t ended, const Flights& flights) {
  for (; ended; ended &= ended - 1)
    if (std::string text = ended_text(std::countr_zero(ended), waits, flights); !text.empty())
      return text;
  return circle_text(waits);
}

}  // namespace zl
