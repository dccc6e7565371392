// What each rank communicated: calls, elements and the bytes that it sent, by collective and
// purpose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace zl {

enum class Collective {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  barrier,
  send,
  receive
};
const char* name(Collective collective);

// scales: of quantised parameters or gradients.
enum class Purpose { parameter, gradient, norm, loss, check, checkpoint, scales, activation };
const char* name(Purpose purpose);

// N times the bytes that each of N ranks sends for one call, given the bytes of the unsharded side.
// The ring factors of nccl-tests' doc/PERFORMANCE.md: all_reduce 2(N-1)/N; reduce_scatter,
// all_gather, all_to_all and broadcast (N-1)/N; send 1; receive and barrier 0. Times N, because
// N need not divide the bytes.
int64_t sent_bytes_times_n(Collective collective, int64_t bytes, int ranks);

// What a row of the log counts.
struct TrafficKey {
  Collective collective{};
  Purpose purpose{};
  std::string group = "";  // the label of its group of ranks; "": all ranks
  auto operator<=>(const TrafficKey&) const = default;
};

struct Traffic {
  int64_t calls = 0;
  int64_t elements = 0;            // [n] of the unsharded side
  int64_t sent_bytes_times_n = 0;  // [B * N], because N need not divide the bytes
  int ranks = 1;                   // N, of all or of the group
  int64_t sent_bytes() const { return sent_bytes_times_n / ranks; }
  bool operator==(const Traffic&) const = default;
};

// How long a rank was in collectives of one kind, by the times of its event stream. The rank that
// the others wait for is the one that waits least.
struct TimeSpent {
  int64_t calls = 0;
  int64_t nanoseconds = 0;  // in which it was carried out or waited for
  int64_t waited = 0;       // [ns] of these until the last rank had arrived
  int64_t exposed = 0;      // [ns] in which the rank did nothing but wait for the call
  TimeSpent& operator+=(const TimeSpent& other);
  int64_t hidden() const { return std::max<int64_t>(0, nanoseconds - exposed); }  // it computed
};

class CommunicationLog {
 public:
  using Rows = std::map<TrafficKey, Traffic>;
  using Times = std::map<Collective, TimeSpent>;
  CommunicationLog() = default;
  CommunicationLog(Rows rows, Times times) : rows_(std::move(rows)), times_(std::move(times)) {}

  void add(Collective collective, Purpose purpose, int64_t elements, int64_t bytes, int ranks,
           std::string_view group = "");
  void add_time(Collective collective, const TimeSpent& time);
  void clear();
  const Rows& rows() const { return rows_; }
  const Times& times() const { return times_; }
  TimeSpent total_time() const;

 private:
  Rows rows_;
  Times times_;
};

}  // namespace zl
