// How long every call of a collective took, by kind and size: read from a rank's events, and
// printed as the tables of DeepSpeed's comms logger.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensor/events.h"

namespace zl {

// A call that has ended.
struct CallTime {
  std::string kind, name;   // "reduce_scatter", "h.3 gradient"
  int64_t bytes = 0;        // [B] of the unsharded side
  int64_t nanoseconds = 0;  // from entering to leaving; in flight: until its data had moved
  int64_t waited = 0;       // [ns] of these until the last rank had arrived
};

class CallTimes {
 public:
  using Ended = std::function<void(const CallTime&)>;
  // `kinds`: the collectives to keep. `ended` is called at the end of each of them, on the rank's
  // own thread.
  explicit CallTimes(std::set<std::string> kinds, Ended ended = nullptr);

  using Key = std::pair<std::string, int64_t>;        // kind, bytes
  using Calls = std::map<Key, std::vector<int64_t>>;  // [ns], in order
  explicit CallTimes(Calls calls) : calls_(std::move(calls)) {}

  // A listener of one rank's stream. Ignores calls that began before it listened.
  void see(const Event& event);

  const Calls& calls() const { return calls_; }

 private:
  struct Open {
    const char* name;
    int64_t began;  // [ns]
    CallTime call;
  };
  std::set<std::string> kinds_;
  Ended ended_;
  std::vector<Open> open_;
  Calls calls_;
};

// As bytes, for a rank in another process; decode_call_times() throws CommunicationError if they
// end too early.
std::string encode(const CallTimes& times);
CallTimes decode_call_times(const std::string& bytes);

// All kinds of collectives, by name.
std::set<std::string> collective_names();
// Our name for a collective of DeepSpeed or PyTorch ("all_gather_into_tensor" → "all_gather"); ""
// if we have none.
std::string our_collective(const std::string& name);

// In Gbit/s, as nccl-tests defines them: the bytes of the unsharded side over the time, and that
// times what an ideal ring sends over each link: 2(N-1)/N for all_reduce, (N-1)/N for
// reduce_scatter, all_gather and all_to_all, else 1.
// https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
struct Bandwidth {
  double algorithm = 0, bus = 0;
};
Bandwidth bandwidth(const std::string& kind, int64_t bytes, double nanoseconds, int ranks);

// The mean without the lowest and highest tenth, as in DeepSpeed.
double trimmed_mean(std::vector<double> values);

// "comm op: all_reduce | time (ms): 0.132 | msg size: 2.0 KiB | algbw (Gbps): 0.12 | busbw (Gbps):
// 0.12"; with `named` the call's name and how long it waited for other ranks too.
std::string call_line(const CallTime& call, int ranks, bool named);

// The calls of rank 0 by kind and size; with several ranks then how much of their time was spent
// waiting for late ranks.
std::string call_table(const std::vector<const CallTimes*>& ranks);

}  // namespace zl
