// Ranks whose schedule a test chooses, and replays.
//
// Ranks are threads, but exactly one runs at a time: the one that has the baton. It stops at each
// event of its stream, at the issue and at the wait of each call. There a Schedule says who goes
// on: a rank, or the network. So a run depends on nothing but program and schedule.
//
// A call is issued onto its rank's lane, a queue. The network carries out a call when it is at the
// head of all lanes, and moves the data of all ranks at once. Like NCCL it has only the addresses:
// it keeps no tensor alive. What the contract leaves open is made NaN: the rest of a tensor after a
// reduce_scatter. Accesses of ranks and calls are checked for races (races.h); the first one fails
// the run.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <semaphore>
#include <string>
#include <vector>

#include "dist/run_ranks.h"
#include "stages/train/trainer.h"
#include "tests/stages/explored/races.h"
#include "tests/stages/explored/schedules.h"

namespace zl::test {

class RaceFound : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ExploredOptions {
  // Called on a rank's thread at each event; may throw, but not at a release.
  std::function<void(int rank, const Event&)> on_event;
  bool check_races = true;  // false: only that memory is allocated
};

struct RankOutcome {
  std::exception_ptr error;  // null: the rank returned
  int64_t live_bytes = 0;    // of its Memory: allocations less releases
  int most_buckets = 0;      // reductions in flight at one time: groups of calls
  int most_gathers = 0;      // all-gathers of parameters in flight at one time
};

// One run of the ranks of one program. Everything in it belongs to the thread that has the baton.
class ExploredRanks {
 public:
  ExploredRanks(int ranks, Schedule& schedule, ExploredOptions options = {});
  ~ExploredRanks();

  // As run_ranks(). Throws RaceFound if there was a race, else the first error of a rank.
  // A schedule that leaves every rank waiting is a CommunicationError.
  void run(const std::function<void(Communicator&)>& body);
  // For TrainingSpec::run_ranks and TrainingSpec::backends; both refer to this object.
  RunRanks runner();
  std::function<RankBackends(int)> checked_backends();

  // Of the run that has ended.
  int64_t steps() const { return steps_; }        // choices of the schedule
  int carried_out() const { return int(head_); }  // calls
  const RankOutcome& outcome(int rank) const { return outcomes_[size_t(rank)]; }
  // Whether at some time every rank waited for a call that could not happen.
  bool stuck() const { return stuck_; }
  // Whether the rank has issued a call that it has not waited for. For on_event.
  bool in_flight(int rank) const;

  // ---- for communicators and backends

  // One rank's side of a call. Addresses only.
  struct Side {
    char* inout = nullptr;
    const char* start = nullptr;
    const std::string* text = nullptr;  // of all_gather_object
    bool issued = false, waited = false;
    int group = 0;  // calls of one group are issued together
  };
  // Returns the call's number.
  int issue(int rank, const Call& call, Side side);
  // Returns when the call was carried out, or throws CommunicationError.
  void wait(int rank, int number);
  // A Work was destroyed before its call was waited for: then the call never happens.
  void drop(int rank, int number) noexcept;
  const std::vector<std::string>& texts(int number) const;
  Races& races() { return races_; }
  Accessor accessor(int rank, const char* what) const;
  void kernel_is_checked(int rank) { ranks_[size_t(rank)].unchecked = false; }

 private:
  struct Operation {
    Call call;
    std::vector<Side> sides;
    std::vector<std::string> texts;
    int issued = 0;
    bool done = false, dropped = false;
  };
  struct Rank {
    std::binary_semaphore baton{0};
    std::optional<int> waits_for;  // the number of a call
    bool ended = false;
    Event event;             // the last one
    bool unchecked = false;  // the last kernel has not said yet what it reads and writes
  };

  void run_rank(int rank, EventStream& events, const std::function<void(Communicator&)>& body);
  void stop_at(int rank, const Event& event);
  void yield(int rank, bool communicates);     // returns when the schedule has chosen `rank`
  int choose(int current, bool communicates);  // -1: all have ended
  bool can_go_on(const Rank& rank) const;
  bool will_happen(int number) const;
  bool network_can_go_on() const;
  void fail(const std::string& why);
  std::string what_ranks_wait_for() const;
  void count_in_flight(int rank);

  void carry_out(int number);
  bool check_accesses(int number);
  void move(Operation& operation);

  const int size_;
  Schedule& schedule_;
  const ExploredOptions options_;
  Races races_;
  std::deque<Rank> ranks_;
  std::vector<RankOutcome> outcomes_;
  std::vector<Operation> operations_;  // in the order of the lanes
  std::vector<int> issued_;            // by rank: calls that it has issued
  size_t head_ = 0;                    // of the lanes: the first call that was not carried out
  int64_t steps_ = 0;
  bool stuck_ = false;
  std::string failure_;  // empty: none
  std::exception_ptr first_error_;
  std::binary_semaphore ended_{0};
};

}  // namespace zl::test
