#include "dist/communication_log.h"

namespace zl {

const char* name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::all_to_all: return "all_to_all";
    case Collective::barrier: return "barrier";
    case Collective::send: return "send";
    case Collective::receive: return "receive";
  }
  return "?";
}

const char* name(Purpose purpose) {
  switch (purpose) {
    case Purpose::parameter: return "parameter";
    case Purpose::gradient: return "gradient";
    case Purpose::norm: return "norm";
    case Purpose::loss: return "loss";
    case Purpose::check: return "check";
    case Purpose::checkpoint: return "checkpoint";
    case Purpose::scales: return "scales";
    case Purpose::activation: return "activation";
  }
  return "?";
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
