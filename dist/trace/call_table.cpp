// What CallTimes has gathered, as text in the columns of DeepSpeed's comms logger.

#include <algorithm>
#include <cstdio>

#include "dist/trace/call_times.h"

namespace zl {
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

// Two columns without numbers, so that sizes stand below "Message Size".
std::string row(int64_t bytes, size_t count, const std::vector<std::string>& numbers) {
  std::string line = format("%-20s%-20s%-20zu", "", size_text(bytes).c_str(), count);
  for (const std::string& number : numbers) line += format("%-20s", number.c_str());
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string own_row(const CallTimes::Key& key, const std::vector<int64_t>& calls, int ranks) {
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
              format("%.2f", trimmed_mean(algorithm)), format("%.2f", trimmed_mean(bus))});
}

// The fastest rank of a call is taken to have waited for nobody: its time is the communication's,
// what rank 0 took beyond that was spent waiting for a rank that was late. Empty if the ranks did
// not make the same calls.
std::string straggler_row(const CallTimes::Key& key, const std::vector<const CallTimes*>& ranks) {
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

// A line with the kind above the rows of each kind.
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
      format(" | time (ms): %.3f | msg size: %s | algbw (Gbps): %.2f | busbw (Gbps): %.2f",
             milliseconds(double(call.nanoseconds)), size_text(call.bytes).c_str(), b.algorithm,
             b.bus);
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
  text += by_kind(own, [&](const auto& key, const auto& calls) { return own_row(key, calls, n); });
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
