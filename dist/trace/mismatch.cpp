#include "dist/trace/mismatch.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "tensor/error.h"

namespace zl {
namespace {

// [ns] A transport that waits for its data itself can say more than a late call that another thread
// finds.
constexpr int64_t kSlack = 500'000'000;

std::string late_text(const Flights& flights, const Call& waiting, int64_t timeout, int64_t now) {
  const std::string limit = human_time(timeout);
  const int peer = waiting.point_to_point() ? waiting.peer_of_run() : -1;
  uint64_t missing = 0;
  int ranks = 0;
  std::string states;
  for (int r = 0; r < int(flights.size()); ++r) {
    if (peer >= 0 ? r != peer : !waiting.group.has(r)) continue;
    ++ranks;
    const auto record = flights[size_t(r)]->in_flight();
    if (peer < 0 && record && !record->call.point_to_point() &&
        record->call.sequence == waiting.sequence && record->call.group == waiting.group)
      continue;
    missing |= uint64_t(1) << r;
    states += "; " + last_seen(r, *flights[size_t(r)], now);
  }
  if (missing == 0) return str("the data of ", describe(waiting), " did not move within ", limit);
  const std::string text =
      peer >= 0 ? str("rank ", peer, " did not match ")
                : str("only ", ranks - std::popcount(missing), " of ", ranks, " ranks came to ");
  return str(text, describe(waiting), " within ", limit, states, ". If ", ranks_text(missing),
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
  return str(text(first), " while ", text(second), "; ", kSameOrder);
}

std::string first_mismatch_text(const Flights& flights) {
  std::vector<std::vector<FlightRecord>> records;  // by rank
  // By group and number; in each the calls of the ranks that have come to it.
  std::map<std::tuple<int, uint64_t, int64_t>, std::vector<const Call*>> collectives;
  for (size_t r = 0; r < flights.size(); ++r)
    for (const FlightRecord& record : records.emplace_back(flights[r]->recent(64))) {
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

std::string ended_text(int ended, const Flights& flights, int rank, const Call& waiting) {
  std::vector<std::pair<Call, uint64_t>> waits{{waiting, uint64_t(1) << rank}};
  for (size_t r = 0; r < flights.size(); ++r) {
    const auto record = flights[r]->in_flight();
    if (!record || int(r) == ended) continue;
    const Call& call = record->call;
    const bool needs = call.point_to_point() ? call.peer_of_run() == ended : call.group.has(ended);
    const auto same = std::ranges::find(waits, call, &std::pair<Call, uint64_t>::first);
    if (same != waits.end())
      same->second |= uint64_t(1) << r;
    else if (needs && record->state == CallState::waiting && int(r) != rank)
      waits.emplace_back(call, uint64_t(1) << r);
  }
  std::string text = str("rank ", ended, " has ended");
  for (const auto& [call, ranks] : waits)
    text += str(&call == &waits.front().first ? ", while " : " and ", ranks_text(ranks),
                std::popcount(ranks) == 1 ? " waits" : " wait", " for it in ", describe(call));
  return text + str("; ", last_seen(ended, *flights[size_t(ended)], steady_nanoseconds()),
                    ". Its own output may say why it ended; if it shows no error, the rank "
                    "probably left a loop earlier than the others");
}

std::string overdue_text(const Flights& flights, int64_t timeout, int64_t since) {
  const int64_t now = steady_nanoseconds();
  if (timeout <= 0) return "";
  for (const FlightRecorder* flight : flights) {
    const auto record = flight->in_flight();
    if (!record || !record->call.has_deadline) continue;
    const int64_t limit = timeout + (record->state == CallState::moving ? kSlack : 0);
    if (now - std::max(record->changed, since) > limit)
      return late_text(flights, record->call, timeout, now);
  }
  return "";
}

namespace {

// One bit for each rank that waits itself.
uint64_t waits_for(const std::vector<WaitingRank>& ranks, size_t rank) {
  const WaitingRank& here = ranks[rank];
  uint64_t others = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const WaitingRank& there = ranks[r];
    const bool elsewhere = there.peer >= 0 || there.group != here.group;
    if (here.call && there.call && r != rank &&
        (here.peer >= 0 ? here.peer == int(r) : here.group.has(int(r)) && elsewhere))
      others |= uint64_t(1) << r;
  }
  return others;
}

}  // namespace

uint64_t deadlocked(const std::vector<WaitingRank>& ranks) {
  uint64_t stuck = ~uint64_t(0) >> (64 - ranks.size());
  for (uint64_t before = 0; before != stuck;) {
    before = stuck;
    for (size_t r = 0; r < ranks.size(); ++r)
      if (!(waits_for(ranks, r) & stuck)) stuck &= ~(uint64_t(1) << r);
  }
  return stuck;
}

std::string deadlock_text(const std::vector<WaitingRank>& ranks) {
  const uint64_t stuck = deadlocked(ranks);
  if (!stuck) return "";
  const auto next = [&](size_t rank) {
    return size_t(std::countr_zero(waits_for(ranks, rank) & stuck));
  };
  const auto goes_to_all = [&](size_t r) { return ranks[r].peer >= 0 && ranks[next(r)].peer < 0; };
  auto rank = size_t(std::countr_zero(stuck));
  for (size_t i = 0; i < ranks.size(); ++i) rank = next(rank);  // into the circle
  for (size_t i = 0; i < ranks.size() && !goes_to_all(rank); ++i) rank = next(rank);
  const bool all_pairs = ranks[rank].peer >= 0 && !goes_to_all(rank);
  return str("rank ", rank, " waits in ", describe(*ranks[rank].call), " while rank ", next(rank),
             " waits in ", describe(*ranks[next(rank)].call),
             all_pairs ? ", and so on in a circle; let one of them send what the other receives"
                       : "; neither can go on");
}

}  // namespace zl
