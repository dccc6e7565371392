#include "dist/trace/call_times.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "dist/call.h"
#include "dist/processes/wire.h"
#include "tensor/error.h"

namespace zl {
namespace {

// Follows the kind of a call of a group. Its bandwidth on the bus is not given, because the number
// of its ranks is not known here.
constexpr const char* kInGroup = " in ";

std::string kind_of(const CallSpan& call) {
  return call.group.empty() ? std::string(call.kind) : str(call.kind, kInGroup, call.group);
}

bool in_group(const std::string& kind) { return kind.find(kInGroup) != std::string::npos; }

// When a call came so far, by the kinds of its events from collective_begin on.
constexpr int64_t CallSpan::*kSteps[] = {&CallSpan::began, &CallSpan::met, &CallSpan::wait,
                                         &CallSpan::moved, &CallSpan::ended};

}  // namespace

std::optional<CallSpan> OpenCalls::see(const Event& e) {
  if (e.kind < EventKind::collective_begin) return {};
  CallSpan call{.kind = e.what, .name = e.detail, .group = e.group};
  if (e.kind == EventKind::collective_begin) {
    call.began = e.nanoseconds, call.bytes = e.bytes, call.count = e.count;
    while (std::ranges::find(open_, call.lane, &CallSpan::lane) != open_.end()) ++call.lane;
    if (call.kind != "send" && call.kind != "receive" && call.group.empty())
      call.index = collectives_++;
    open_.push_back(call);
    return {};
  }
  const auto step = kSteps[int(e.kind) - int(EventKind::collective_begin)];
  const auto open = std::ranges::find_if(open_, [&](const CallSpan& o) {
    return o.*step == 0 && o.name == call.name && o.kind == call.kind && o.group == call.group;
  });
  if (open == open_.end()) return {};
  (*open).*step = e.nanoseconds;
  if (e.kind != EventKind::collective_end) return {};
  call = *open;
  call.sent = e.bytes;
  open_.erase(open);
  return call;
}

void CallTimes::see(const Event& event) {
  const std::optional<CallSpan> call = open_.see(event);
  if (!call || kinds_.count(std::string(call->kind)) == 0) return;
  calls_[{kind_of(*call), call->bytes}].push_back(call->end() - call->began);
  if (ended_) ended_(*call);
}

std::string encode(const CallTimes::Calls& calls) {
  WireWriter wire;
  for (const auto& [key, times] : calls) {
    wire.text(key.first).put(key.second).put(uint64_t(times.size()));
    for (const int64_t nanoseconds : times) wire.put(nanoseconds);
  }
  return wire.take();
}

CallTimes::Calls decode_call_times(const std::string& bytes) {
  CallTimes::Calls all;
  for (WireReader wire(bytes); !wire.at_end();) {
    const std::string kind = wire.text();
    std::vector<int64_t>& calls = all[{kind, wire.get<int64_t>()}];
    for (uint64_t left = wire.get<uint64_t>(); left > 0; --left)
      calls.push_back(wire.get<int64_t>());
  }
  return all;
}

std::set<std::string> collective_names() {
  std::set<std::string> names;
  for (int i = 0; i <= int(Collective::receive); ++i) names.insert(name(Collective(i)));
  return names;
}

std::string our_collective(const std::string& name) {
  static const std::map<std::string, std::set<std::string>> others = {
      {"all_gather",
       {"all_gather_into_tensor", "all_gather_object", "all_gather_coalesced", "all_gather_fn"}},
      {"all_reduce", {"all_reduce_coalesced", "inference_all_reduce"}},
      {"reduce_scatter", {"reduce_scatter_tensor", "reduce_scatter_fn"}},
      {"all_to_all", {"all_to_all_single"}},
      {"broadcast", {"broadcast_object_list"}},
      {"send", {"isend"}},
      {"receive", {"recv", "irecv"}}};
  for (const std::string& ours : collective_names()) {
    const auto also = others.find(ours);
    if (name == ours || (also != others.end() && also->second.count(name) != 0)) return ours;
  }
  return "";
}

Bandwidth bandwidth(std::string_view kind, int64_t bytes, double nanoseconds, int ranks) {
  if (nanoseconds <= 0) return {};
  const double share = double(ranks - 1) / ranks;
  const bool shards = kind == "reduce_scatter" || kind == "all_gather" || kind == "all_to_all";
  const double factor = kind == "all_reduce" ? 2 * share : shards ? share : 1;
  const double gbit = 8 * double(bytes) / nanoseconds;  // a bit per nanosecond is a Gbit per second
  return {gbit, gbit * factor};
}

double trimmed_mean(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  // A half is rounded to the even number, as in Python.
  const auto cut = long(std::nearbyint(double(values.size()) * 0.1));
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         double(long(values.size()) - 2 * cut);
}

// The table, in the columns of DeepSpeed's comms logger.

namespace {

using Cells = std::vector<std::string>;

std::string format(const char* pattern, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

std::string milliseconds(double nanoseconds) { return format("%.3f", nanoseconds * 1e-6); }

// "0 B", "2.0 KiB", "678.9 MiB"
std::string size_text(int64_t bytes) {
  if (bytes < 1024) return format("%lld B", (long long)bytes);
  double size = double(bytes) / 1024;
  int unit = 0;
  for (; size >= 1024 && unit < 3; ++unit) size /= 1024;
  return format("%.1f %ciB", size, "KMGT"[unit]);
}

std::string bus_text(const std::string& kind, double bus) {
  return in_group(kind) ? "-" : format("%.2f", bus);
}

std::string line(const Cells& cells) {
  std::string text;
  for (const std::string& cell : cells) text += format("%-20s", cell.c_str());
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

Cells rank_0_cells(const CallTimes::Key& key, const std::vector<int64_t>& calls, int ranks) {
  const std::vector<double> times(calls.begin(), calls.end());
  std::vector<double> algorithm, bus;
  for (const double nanoseconds : times) {
    const Bandwidth b = bandwidth(key.first, key.second, nanoseconds, ranks);
    algorithm.push_back(b.algorithm);
    bus.push_back(b.bus);
  }
  return {milliseconds(sum(times)), milliseconds(trimmed_mean(times)),
          format("%.2f", trimmed_mean(algorithm)), bus_text(key.first, trimmed_mean(bus))};
}

// Assumes that the fastest rank of a call did not wait: its time is that of the communication, and
// what rank 0 took beyond it was spent waiting for a late rank. Empty if the ranks did not make the
// same calls.
Cells straggler_cells(const CallTimes::Key& key, const std::vector<CallTimes::Calls>& ranks) {
  if (in_group(key.first)) return {};  // the ranks of a call are not all ranks
  const std::vector<int64_t>& own = ranks[0].at(key);
  std::vector<double> fastest(own.begin(), own.end()), straggler = fastest;
  for (const CallTimes::Calls& rank : ranks) {
    const auto found = rank.find(key);
    if (found == rank.end() || found->second.size() != own.size()) return {};
    for (size_t call = 0; call < own.size(); ++call)
      fastest[call] = std::min(fastest[call], double(found->second[call]));
  }
  for (size_t call = 0; call < own.size(); ++call) straggler[call] -= fastest[call];
  return {milliseconds(sum(fastest)), milliseconds(sum(straggler)),
          milliseconds(trimmed_mean(fastest)), milliseconds(trimmed_mean(straggler))};
}

// Each kind, and below it a row for each size.
std::string rows(const CallTimes::Calls& all, const auto& cells_of) {
  std::string text, last;
  for (const auto& [key, calls] : all) {
    Cells cells = cells_of(key, calls);
    if (cells.empty()) continue;
    if (key.first != last) text += key.first + "\n";
    last = key.first;
    const Cells begin = {"", size_text(key.second), str(calls.size())};
    cells.insert(cells.begin(), begin.begin(), begin.end());
    text += line(cells);
  }
  return text;
}

}  // namespace

std::string call_line(const CallSpan& call, int ranks, bool named) {
  const int64_t took = call.end() - call.began;
  const Bandwidth b = bandwidth(call.kind, call.bytes, double(took), ranks);
  std::string text =
      str("comm op: ", kind_of(call), " | time (ms): ", milliseconds(double(took)),
          " | msg size: ", size_text(call.bytes), format(" | algbw (Gbps): %.2f", b.algorithm),
          " | busbw (Gbps): ", bus_text(kind_of(call), b.bus));
  const int64_t waited = call.met > 0 ? call.met - call.began : 0;
  if (named) text += str(" | name: ", call.name, " | waited (ms): ", milliseconds(double(waited)));
  return text;
}

std::string call_table(const std::vector<CallTimes::Calls>& ranks) {
  const CallTimes::Calls& own = ranks.at(0);
  const int n = int(ranks.size());
  if (own.empty()) return "comms_logger: rank 0 made no call of the chosen collectives\n";
  std::string text =
      "Communication of rank 0. Message size: of the unsharded side, in all; tput: that over the "
      "time (algbw of nccl-tests);\n"
      "busbw: tput times 2(N-1)/N for all_reduce, (N-1)/N for reduce_scatter, all_gather and "
      "all_to_all. DeepSpeed's tput of\n"
      "all_reduce is twice this one. Averages leave out the tenth at either end.\n";
  text += line({"Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)",
                "tput_avg (Gbps)", "busbw_avg (Gbps)"});
  text +=
      rows(own, [&](const auto& key, const auto& calls) { return rank_0_cells(key, calls, n); });
  if (n == 1) return text;
  text +=
      "_______________________________\nBreakdown with straggler "
      "effect\n-------------------------------\n";
  text += line({"Comm. Op", "Message Size", "Count", "Total comm lat(ms)", "Total straggler(ms)",
                "Avg comm lat(ms)", "Avg straggler(ms)"});
  return text +
         rows(own, [&](const auto& key, const auto&) { return straggler_cells(key, ranks); });
}

}  // namespace zl
