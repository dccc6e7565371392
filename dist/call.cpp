#include "dist/call.h"

#include <bit>

#include "tensor/error.h"

namespace zl {

const char* name(Collective collective) {
  static constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                          "all_to_all", "barrier",        "send",       "receive"};
  return names[size_t(collective)];
}

const char* name(Purpose purpose) {
  static constexpr const char* names[] = {"parameter", "gradient",   "norm",  "loss",
                                          "check",     "checkpoint", "scales"};
  return names[size_t(purpose)];
}

const char* name(Reduction reduction) { return reduction == Reduction::sum ? "sum" : "mean"; }

int RankGroup::of_run(int rank) const {
  if (number == 0 || rank < 0) return rank;
  uint64_t left = ranks;
  for (; rank > 0; --rank) left &= left - 1;
  return std::countr_zero(left);
}

std::string ranks_text(uint64_t ranks) {
  std::string text = std::popcount(ranks) == 1 ? "rank " : "ranks ";
  for (int left = std::popcount(ranks); ranks; ranks &= ranks - 1, --left)
    text += str(std::countr_zero(ranks), left > 2 ? ", " : left == 2 ? " and " : "");
  return text;
}

std::string describe(const Call& call, bool reduction) {
  std::string text = str(name(call.kind), " '", call.name, "'");
  if (call.kind != Collective::barrier)
    text +=
        str(" of ", call.count, " ", name(call.dtype), call.count == 1 ? " element" : " elements");
  if (reduction && call.reduces()) text += str(", ", name(call.reduction));
  if (call.kind == Collective::send) text += str(" to rank ", call.peer_of_run());
  if (call.kind == Collective::receive || call.kind == Collective::broadcast)
    text += str(" from rank ", call.peer_of_run());
  text += str(" (call ", call.sequence);
  if (call.group.number > 0)
    text += str(" of group '", call.group.label, "', ", ranks_text(call.group.ranks));
  return text + ")";
}

// ---- what was communicated --------------------------------------------------------------------

int64_t sent_bytes_times_n(Collective collective, int64_t bytes, int ranks) {
  switch (collective) {
    case Collective::all_reduce: return 2 * (ranks - 1) * bytes;
    case Collective::send: return ranks * bytes;
    case Collective::receive:
    case Collective::barrier: return 0;
    default: return (ranks - 1) * bytes;  // reduce_scatter, all_gather, all_to_all, broadcast
  }
}

void CommunicationLog::add(Collective collective, Purpose purpose, int64_t elements, int64_t bytes,
                           int ranks, std::string_view group) {
  Traffic& row = rows_[{collective, purpose, std::string(group)}];
  row.calls += 1;
  row.elements += elements;
  row.sent_bytes_times_n += zl::sent_bytes_times_n(collective, bytes, ranks);
  row.ranks = ranks;
}

TimeSpent& TimeSpent::operator+=(const TimeSpent& other) {
  calls += other.calls;
  nanoseconds += other.nanoseconds;
  waited += other.waited;
  exposed += other.exposed;
  return *this;
}

void CommunicationLog::add_time(Collective collective, const TimeSpent& time) {
  times_[collective] += time;
}

void CommunicationLog::clear() {
  rows_.clear();
  times_.clear();
}

TimeSpent CommunicationLog::total_time() const {
  TimeSpent total;
  for (const auto& [collective, time] : times_) total += time;
  return total;
}

}  // namespace zl
