// How long every call of a collective took, read from a rank's events: for the timeline, and by
// kind and size as the tables of DeepSpeed's comms logger.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/events.h"

namespace zl {

// A call, from entering to leaving; one in flight, from its issue until its data had moved. Its
// texts are those of the events. [ns]; 0: it has not come so far.
struct CallSpan {
  std::string_view kind, name, group;      // "reduce_scatter", "h.3 gradient"
  int64_t bytes = 0, count = 0, sent = 0;  // of the unsharded side; [n]; by the ring formula
  int64_t began = 0, met = 0;              // met: the last rank had arrived
  int64_t wait = 0, moved = 0, ended = 0;  // wait: the rank began to wait for it
  int lane = 0;                            // calls that overlap have different lanes
  int64_t index = -1;                      // counts those of all ranks; -1: another call
  int64_t end() const { return moved > 0 ? moved : ended; }
};

// Follows the calls of one rank. Ignores those that began before it saw events.
class OpenCalls {
 public:
  // Returns the call that ended with this event, if one did.
  std::optional<CallSpan> see(const Event& event);
  const std::vector<CallSpan>& calls() const { return open_; }  // by their begins

 private:
  std::vector<CallSpan> open_;
  int64_t collectives_ = 0;
};

class CallTimes {
 public:
  using Ended = std::function<void(const CallSpan&)>;
  // `kinds`: the collectives to keep. `ended` is called at the end of each of them, on the rank's
  // own thread.
  explicit CallTimes(std::set<std::string> kinds, Ended ended = nullptr)
      : kinds_(std::move(kinds)), ended_(std::move(ended)) {}

  using Key = std::pair<std::string, int64_t>;        // kind, bytes
  using Calls = std::map<Key, std::vector<int64_t>>;  // [ns], in order

  void see(const Event& event);  // a listener of one rank's stream

  const Calls& calls() const { return calls_; }

 private:
  std::set<std::string> kinds_;
  Ended ended_;
  OpenCalls open_;
  Calls calls_;
};

// As bytes, for a rank in another process; decode_call_times() throws CommunicationError if they
// end too early.
std::string encode(const CallTimes::Calls& calls);
CallTimes::Calls decode_call_times(const std::string& bytes);

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
Bandwidth bandwidth(std::string_view kind, int64_t bytes, double nanoseconds, int ranks);

// The mean without the lowest and highest tenth, as in DeepSpeed.
double trimmed_mean(std::vector<double> values);

// "comm op: all_reduce | time (ms): 0.132 | msg size: 2.0 KiB | algbw (Gbps): 0.12 | busbw (Gbps):
// 0.12"; with `named` the call's name and how long it waited for other ranks too.
std::string call_line(const CallSpan& call, int ranks, bool named);

// The calls of rank 0 by kind and size; with several ranks then how much of their time was spent
// waiting for late ranks.
std::string call_table(const std::vector<CallTimes::Calls>& ranks);

}  // namespace zl
