// What goes wrong inside a fake NCCL, and when: a script that the fake asks at every call.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dist/nccl/api.h"

namespace zl::test {

// What goes wrong at one call of one function.
struct Fault {
  enum class Kind {
    slow,         // in progress for `times` polls
    fails,        // returns `result`
    fails_later,  // is in progress, then reports `result`
    never,        // is in progress forever
    stalls,  // NCCL takes it, and the data never moves; in a fake stream, or as `never` without one
    breaks,  // as `stalls`, and `times` polls later NCCL reports `result`
    hangs    // does not return
  };
  std::string function;
  Kind kind = Kind::fails;
  int rank = 1;  // -1: every rank
  int call = 1;  // the how-manieth of this function on this rank; 0: every one
  NcclResult result = NcclResult::system_error;
  std::string said = {};  // by ncclGetLastError
  int times = 5;
};

// Reads faults from a text: "ncclAllGather:never:rank=1:call=3; ncclSend:fails:rank=-1:call=1".
// Throws InputError.
std::vector<Fault> faults_from(const std::string& text);

// What faults have done to a communicator.
struct Trouble {
  NcclResult error = NcclResult::success;
  int slow = 0;       // polls to come that say in progress
  int breaks_in = 0;  // polls to come until the error is `later`
  NcclResult later = NcclResult::success;
  bool stalls = false;  // what it posts next
  bool never = false;
  // Returns what the call returns; `hangs` is left to the fake.
  NcclResult take(const Fault& fault);
  void poll();  // to be called after each
};

// Counts calls, and knows which go wrong. The fake guards it.
class FaultScript {
 public:
  explicit FaultScript(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  std::vector<Fault> call(const std::string& function,
                          int rank);             // counts it; returns what goes wrong in it
  int calls(const std::string& function) const;  // of all ranks
  const char* last_said() const { return said_.empty() ? "" : said_.back().c_str(); }

 private:
  const std::vector<Fault> faults_;
  std::map<std::string, std::map<int, int>> calls_;  // of each function on each rank
  std::deque<std::string> said_;
};

}  // namespace zl::test
