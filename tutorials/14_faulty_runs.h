// Training runs in which one rank does something wrong, and what they report: lesson 14.
#pragma once

#include <atomic>
#include <deque>
#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tutorials/lesson/model_m.h"
#include "tutorials/lesson/stepper.h"

namespace zl::lesson {

struct Gone {};  // the rank ends without a message, as a process that the system kills

// What a rank's events say about its calls.
struct RankCalls {
  std::atomic<int64_t> begun = 0;  // how many
  int64_t began = 0;               // [ns] the last one
  int64_t waited = 0;              // [ns] for other ranks in the first calls after backward

  void see(const Event& e) {
    if (e.kind == EventKind::collective_begin) ++begun, began = e.nanoseconds;
    const bool after_backward = e.detail == std::string("gradient norm");
    if (e.kind == EventKind::collective_met && after_backward) waited += e.nanoseconds - began;
  }
};

struct FaultyRun {
  explicit FaultyRun(int ranks) : ranks(size_t(ranks)) {}
  std::string error, report;         // the first error, and the flight recorder's text
  std::atomic<bool> failed = false;  // a rank has thrown
  std::deque<RankCalls> ranks;

  int least_waiting() const {
    return int(std::ranges::min_element(ranks, {}, &RankCalls::waited) - ranks.begin());
  }
  // Outside any call, until another rank has failed.
  void wait_for_a_file_that_never_comes() const {
    while (!failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Until all others are in their next call, so that the report finds them there.
  void let_others_come(int rank) const {
    const RankCalls& own = ranks[size_t(rank)];
    for (const RankCalls& other : ranks)
      while (&other != &own && other.begun <= own.begun && !failed)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
};

// Trains as `spec` says, and returns also if the run fails.
inline void train_faulty(Lesson& lesson, TrainingSpec spec, const TrainingCallbacks& callbacks,
                         FaultyRun& run) {
  spec.run_ranks = [&](int size, const auto& train, RankOptions options) {
    const auto rank = [&](Communicator& comm) {
      comm.events().listen([&, r = size_t(comm.rank())](const Event& e) { run.ranks[r].see(e); });
      try {
        train(comm);
      } catch (const Gone&) {
      } catch (...) {
        run.failed = true;
        throw;
      }
    };
    lesson.run_ranks(size, rank, options);
  };
  try {
    run_training(spec, callbacks);
  } catch (const Left&) {
    throw;
  } catch (const std::exception& error) {
    run.error = error.what();
  }
  run.report = last_failure_report();
}

// The cause of a failure, and `calls`: the state of each rank and its last call. `all`: the whole
// report. Times depend on the machine, so every line begins with "~". The cause is one long line of
// the report: here a line per clause.
inline void show(Lesson& lesson, const std::string& report, bool calls, bool all) {
  std::istringstream text(report);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back("~ " + line);
  static const std::regex clause(" (?=(while|asked|in use) )|([;.]) ");
  lesson.say(std::regex_replace(lines[0], clause, "$2\n~     "));
  const auto is_call = [&](size_t i) { return i < lines.size() && lines[i].starts_with("~   "); };
  for (size_t i = 1; (calls || all) && i < lines.size(); ++i)
    if (all || !is_call(i) || !is_call(i + 1)) lesson.say(lines[i]);
}

// The number that follows `before` in the text; -1: none does.
inline int64_t number_after(const std::string& before, const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(before + "([0-9]+)")) ? std::stoll(found[1])
                                                                         : -1;
}

}  // namespace zl::lesson
