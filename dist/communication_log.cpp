#include "dist/communication_log.h"

namespace zl {

const char* name(Collective collective) {
  static constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                          "all_to_all", "barrier",        "send",       "receive"};
  return names[size_t(collective)];
}

const char* name(Purpose purpose) {
  static constexpr const char* names[] = {"parameter", "gradient",   "norm",   "loss",
                                          "check",     "checkpoint", "scales", "activation"};
  return names[size_t(purpose)];
}

int64_t sent_bytes_times_n(Collective collective, int64_t bytes, int ranks) {
  switch (collective) {
    case Collective::all_reduce: return 2 * (ranks - 1) * bytes;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::broadcast: return (ranks - 1) * bytes;
    case Collective::send: return ranks * bytes;
    case Collective::receive:
    case Collective::barrier: return 0;
  }
  return 0;
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
