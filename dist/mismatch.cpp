#include "dist/mismatch.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "tensor/error.h"

namespace zl {
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

// Whether a rank has come to `waiting`, in which `rank` is. It may have left a collective already,
// or not wait for it yet.
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

std::string circle_text(const Waits& waits) {
  uint64_t stuck = ~uint64_t(0) >> (64 - waits.size());
  for (uint64_t before = 0; before != stuck;) {
    before = stuck;
    for (size_t r = 0; r < waits.size(); ++r)
      if (!(waits_for(waits, r) & stuck)) stuck &= ~(uint64_t(1) << r);
  }
  if (!stuck) return "";
  const auto next = [&](size_t rank) {
    return size_t(std::countr_zero(waits_for(waits, rank) & stuck));
  };
  const auto alone = [&](size_t r) { return waits[r]->point_to_point(); };
  const auto goes_to_all = [&](size_t r) { return alone(r) && !alone(next(r)); };
  auto rank = size_t(std::countr_zero(stuck));
  for (size_t i = 0; i < waits.size(); ++i) rank = next(rank);  // into the circle
  for (size_t i = 0; i < waits.size() && !goes_to_all(rank); ++i) rank = next(rank);
  const bool all_pairs = alone(rank) && !goes_to_all(rank);
  return str("rank ", rank, " waits in ", describe(*waits[rank]), " while rank ", next(rank),
             " waits in ", describe(*waits[next(rank)]),
             all_pairs ? ", and so on in a circle; let one of them send what the other receives"
                       : "; neither can go on");
}

}  // namespace

std::string stuck_text(const Waits& waits, uint64_t ended, const Flights& flights) {
  for (; ended; ended &= ended - 1)
    if (std::string text = ended_text(std::countr_zero(ended), waits, flights); !text.empty())
      return text;
  return circle_text(waits);
}

}  // namespace zl
