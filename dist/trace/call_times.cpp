#include "dist/trace/call_times.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string_view>

#include "dist/communication_log.h"
#include "dist/wire.h"
#include "tensor/error.h"

namespace zl {

namespace {

// Follows the kind of a call of a group. Its bandwidth on the bus is not given, because the number
// of its ranks is not known here.
constexpr const char* kInGroup = " in ";

bool in_group(const std::string& kind) { return kind.find(kInGroup) != std::string::npos; }

}  // namespace

CallTimes::CallTimes(std::set<std::string> kinds, Ended ended)
    : kinds_(std::move(kinds)), ended_(std::move(ended)) {}

void CallTimes::see(const Event& event) {
  if (event.kind < EventKind::collective_begin) return;
  const std::string kind =
      *event.group ? str(event.what, kInGroup, event.group) : std::string(event.what);
  if (event.kind == EventKind::collective_begin && kinds_.count(event.what) != 0)
    open_.push_back({event.detail, event.nanoseconds, {kind, event.detail, event.bytes}});
  if (event.kind != EventKind::collective_met && event.kind != EventKind::collective_moved &&
      event.kind != EventKind::collective_end)
    return;
  // Equal names are one pointer, because a stream keeps one copy. Of equal calls the first ends
  // first.
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& o) {
    return o.name == event.detail && o.call.kind == kind;
  });
  if (open == open_.end()) return;
  if (event.kind == EventKind::collective_met) {
    open->call.waited = event.nanoseconds - open->began;
    return;
  }
  if (event.kind == EventKind::collective_moved) {
    open->call.nanoseconds = event.nanoseconds - open->began;
    return;
  }
  CallTime call = std::move(open->call);
  if (call.nanoseconds == 0) call.nanoseconds = event.nanoseconds - open->began;
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

// The table, in the columns of DeepSpeed's comms logger.

namespace {

std::string format(const char* pattern, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// "0 B", "2.0 KiB", "678.9 MiB"
std::string size_text(int64_t bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return format("%lld B", (long long)bytes);
  double size = double(bytes) / 1024;
  int unit = 0;
  for (; size >= 1024 && unit < 3; ++unit) size /= 1024;
  return format("%.1f %s", size, units[unit]);
}

double milliseconds(double nanoseconds) { return nanoseconds * 1e-6; }

std::string heading(std::initializer_list<const char*> columns) {
  std::string line;
  for (const char* column : columns) line += format("%-20s", column);
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

// The sizes come below "Message Size".
std::string row(int64_t bytes, size_t count, const std::vector<std::string>& numbers) {
  std::string line = format("%-20s%-20s%-20zu", "", size_text(bytes).c_str(), count);
  for (const std::string& number : numbers) line += format("%-20s", number.c_str());
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string rank_0_row(const CallTimes::Key& key, const std::vector<int64_t>& calls, int ranks) {
  std::vector<double> times, algorithm, bus;
  double total = 0;
  for (const int64_t nanoseconds : calls) {
    const Bandwidth b = bandwidth(key.first, key.second, double(nanoseconds), ranks);
    times.push_back(milliseconds(double(nanoseconds)));
    algorithm.push_back(b.algorithm);
    bus.push_back(b.bus);
    total += times.back();
  }
  return row(key.second, calls.size(),
             {format("%.3f", total), format("%.3f", trimmed_mean(times)),
              format("%.2f", trimmed_mean(algorithm)),
              in_group(key.first) ? "-" : format("%.2f", trimmed_mean(bus))});
}

// Assumes that the fastest rank of a call did not wait: its time is that of the communication, and
// what rank 0 took beyond it was spent waiting for a late rank. Empty if the ranks did not make the
// same calls.
std::string straggler_row(const CallTimes::Key& key, const std::vector<const CallTimes*>& ranks) {
  if (in_group(key.first)) return "";  // the ranks of a call are not all ranks
  const std::vector<int64_t>& own = ranks[0]->calls().at(key);
  std::vector<double> least, straggler;
  double least_total = 0, straggler_total = 0;
  for (size_t call = 0; call < own.size(); ++call) {
    int64_t fastest = own[call];
    for (const CallTimes* rank : ranks) {
      const auto found = rank->calls().find(key);
      if (found == rank->calls().end() || found->second.size() != own.size()) return "";
      fastest = std::min(fastest, found->second[call]);
    }
    least.push_back(milliseconds(double(fastest)));
    straggler.push_back(milliseconds(double(own[call] - fastest)));
    least_total += least.back();
    straggler_total += straggler.back();
  }
  return row(key.second, own.size(),
             {format("%.3f", least_total), format("%.3f", straggler_total),
              format("%.3f", trimmed_mean(least)), format("%.3f", trimmed_mean(straggler))});
}

// Each kind, and below it its rows.
template <class Row>
std::string by_kind(const CallTimes& times, const Row& row_of) {
  std::string text, last;
  for (const auto& [key, calls] : times.calls()) {
    const std::string line = row_of(key, calls);
    if (line.empty()) continue;
    if (key.first != last) text += key.first + "\n";
    last = key.first;
    text += line;
  }
  return text;
}

}  // namespace

std::string call_line(const CallTime& call, int ranks, bool named) {
  const Bandwidth b = bandwidth(call.kind, call.bytes, double(call.nanoseconds), ranks);
  std::string line =
      "comm op: " + call.kind +
      format(" | time (ms): %.3f | msg size: %s | algbw (Gbps): %.2f | busbw (Gbps): %s",
             milliseconds(double(call.nanoseconds)), size_text(call.bytes).c_str(), b.algorithm,
             in_group(call.kind) ? "-" : format("%.2f", b.bus).c_str());
  if (named)
    line +=
        " | name: " + call.name + format(" | waited (ms): %.3f", milliseconds(double(call.waited)));
  return line;
}

std::string call_table(const std::vector<const CallTimes*>& ranks) {
  const CallTimes& own = *ranks.at(0);
  const int n = int(ranks.size());
  if (own.calls().empty()) return "comms_logger: rank 0 made no call of the chosen collectives\n";
  std::string text =
      "Communication of rank 0. Message size: of the unsharded side, in all; tput: that over the "
      "time (algbw of nccl-tests);\n"
      "busbw: tput times 2(N-1)/N for all_reduce, (N-1)/N for reduce_scatter, all_gather and "
      "all_to_all. DeepSpeed's tput of\n"
      "all_reduce is twice this one. Averages leave out the tenth at either end.\n";
  text += heading({"Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)",
                   "tput_avg (Gbps)", "busbw_avg (Gbps)"});
  text +=
      by_kind(own, [&](const auto& key, const auto& calls) { return rank_0_row(key, calls, n); });
  if (n == 1) return text;
  text +=
      "_______________________________\nBreakdown with straggler "
      "effect\n-------------------------------\n";
  text += heading({"Comm. Op", "Message Size", "Count", "Total comm lat(ms)", "Total straggler(ms)",
                   "Avg comm lat(ms)", "Avg straggler(ms)"});
  return text +
         by_kind(own, [&](const auto& key, const auto&) { return straggler_row(key, ranks); });
}

}  // namespace zl
