// One call of a collective: what ranks compare to detect a mismatch, and what errors and reports
// name. And what each rank communicated: calls, elements and the bytes that it sent, by collective
// and purpose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tensor/dtype.h"

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
enum class Purpose { parameter, gradient, norm, loss, check, checkpoint, scales };
const char* name(Purpose purpose);

enum class Reduction { sum, mean };
const char* name(Reduction reduction);

// How far a call has come: issued but not waited for, waiting for other ranks, moving data.
enum class CallState { posted, waiting, moving, done, failed };

// The ranks that a call is among: all of them, or those of one group (Communicator::split).
struct RankGroup {
  int number = 0;               // 1, 2, … in the order of the splits; 0: all ranks
  uint64_t ranks = 0;           // of a group: one bit for each of the first 64 ranks of the run
  std::string_view label = "";  // lives as long as the rank's event stream

  bool operator==(const RankGroup&) const = default;
  bool has(int rank_of_run) const { return number == 0 || (ranks >> rank_of_run & 1); }
  int of_run(int rank) const;  // the number in the run of a rank of the group
};

struct Call {
  Collective kind{};
  Dtype dtype = Dtype::f32;
  Reduction reduction = Reduction::sum;
  int peer = -1;             // root of a broadcast, other side of a send or receive; in its group
  int64_t count = 0;         // [n] of the unsharded side
  int64_t sequence = 0;      // 1, 2, … among this rank's collectives in the group; of a send or
                             // receive: among those to or from this peer
  std::string_view name;     // lives as long as the rank's event stream
  bool has_deadline = true;  // false: it waits for the other ranks however long they take
  RankGroup group = {};

  int peer_of_run() const { return group.of_run(peer); }
  bool operator==(const Call&) const = default;
  bool reduces() const {
    return kind == Collective::all_reduce || kind == Collective::reduce_scatter;
  }
  bool point_to_point() const { return kind == Collective::send || kind == Collective::receive; }
};

// "rank 2", "ranks 0, 1 and 3", of a mask with one bit per rank.
std::string ranks_text(uint64_t ranks);

// "reduce_scatter 'h.1 gradient' of 96 f32 elements (call 17)", for people; in a group "(call 17 of
// group 'intra', ranks 2 and 3)". With `reduction` it says sum or mean too.
std::string describe(const Call& call, bool reduction = false);

// ---- what was communicated --------------------------------------------------------------------

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
