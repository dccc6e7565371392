#include "dist/trace/call_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "dist/communication_log.h"
#include "dist/processes/wire.h"

namespace zl {

CallTimes::CallTimes(std::set<std::string> kinds, Ended ended)
    : kinds_(std::move(kinds)), ended_(std::move(ended)) {}

void CallTimes::see(const Event& event) {
  const std::string_view kind = event.what;
  if (event.kind == EventKind::collective_begin && kinds_.count(event.what) != 0)
    open_.push_back({event.detail, event.nanoseconds, {event.what, event.detail, event.bytes}});
  if (event.kind != EventKind::collective_met && event.kind != EventKind::collective_end) return;
  // Names are kept once per stream, so equal ones are the same pointer. Of equal calls the first
  // ends first.
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& o) {
    return o.name == event.detail && o.call.kind == kind;
  });
  if (open == open_.end()) return;
  if (event.kind == EventKind::collective_met) {
    open->call.waited = event.nanoseconds - open->began;
    return;
  }
  CallTime call = std::move(open->call);
  call.nanoseconds = event.nanoseconds - open->began;
  open_.erase(open);
  calls_[{call.kind, call.bytes}].push_back(call.nanoseconds);
  if (ended_) ended_(call);
}

std::string encode(const CallTimes& times) {
  WireWriter wire;
  for (const auto& [key, calls] : times.calls()) {
    wire.text(key.first).put(key.second).put(uint64_t(calls.size()));
    for (const int64_t nanoseconds : calls) wire.put(nanoseconds);
  }
  return wire.take();
}

CallTimes decode_call_times(const std::string& bytes) {
  CallTimes::Calls all;
  for (WireReader wire(bytes); !wire.at_end();) {
    const std::string kind = wire.text();
    std::vector<int64_t>& calls = all[{kind, wire.get<int64_t>()}];
    for (uint64_t left = wire.get<uint64_t>(); left > 0; --left)
      calls.push_back(wire.get<int64_t>());
  }
  return CallTimes(std::move(all));
}

std::set<std::string> collective_names() {
  std::set<std::string> names;
  for (int i = 0; i <= int(Collective::receive); ++i) names.insert(name(Collective(i)));
  return names;
}

std::string our_collective(const std::string& name) {
  static const std::map<std::string, std::string> others = {
      {"all_gather_into_tensor", "all_gather"},
      {"all_gather_object", "all_gather"},
      {"all_gather_coalesced", "all_gather"},
      {"all_reduce_coalesced", "all_reduce"},
      {"inference_all_reduce", "all_reduce"},
      {"reduce_scatter_tensor", "reduce_scatter"},
      {"reduce_scatter_fn", "reduce_scatter"},
      {"all_gather_fn", "all_gather"},
      {"all_to_all_single", "all_to_all"},
      {"broadcast_object_list", "broadcast"},
      {"isend", "send"},
      {"recv", "receive"},
      {"irecv", "receive"},
  };
  if (collective_names().count(name) != 0) return name;
  const auto found = others.find(name);
  return found == others.end() ? "" : found->second;
}

Bandwidth bandwidth(const std::string& kind, int64_t bytes, double nanoseconds, int ranks) {
  if (nanoseconds <= 0) return {};
  const double share = double(ranks - 1) / ranks;
  const bool shards = kind == "reduce_scatter" || kind == "all_gather" || kind == "all_to_all";
  const double factor = kind == "all_reduce" ? 2 * share : shards ? share : 1;
  const double gbit = 8 * double(bytes) / nanoseconds;  // a bit per nanosecond is a Gbit per second
  return {gbit, gbit * factor};
}

double trimmed_mean(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto cut = long(
      std::nearbyint(double(values.size()) * 0.1));  // a half goes to the even number, as in Python
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         double(long(values.size()) - 2 * cut);
}

}  // namespace zl
