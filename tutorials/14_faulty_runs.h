// Training runs in which one rank does something wrong, and what they report: lesson 14.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <regex>
#include <sstream>
#include <thread>

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
  std::string of_another;            // the error of a rank that only heard of it
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
  std::mutex mutex;
  spec.run_ranks = [&](int size, const auto& train, RankOptions options) {
    const auto rank = [&](Communicator& comm) {
      comm.events().listen([&, r = size_t(comm.rank())](const Event& e) { run.ranks[r].see(e); });
      try {
        train(comm);
      } catch (const Gone&) {
      } catch (const std::exception& error) {
        run.failed = true;
        std::lock_guard lock(mutex);
        if (dynamic_cast<const CommunicationError*>(&error)) run.of_another = error.what();
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
// report. Times depend on the machine, so every line begins with "~".
inline void show(Lesson& lesson, const std::string& report, bool calls, bool all) {
  std::istringstream lines(report);
  std::string line, last;
  std::getline(lines, line);
  for (const auto& [end, next] : {std::pair{"; ", ";\n~     "},
                                  {". ", ".\n~     "},
                                  {" while ", "\n~     while "},
                                  {": asked", ":\n~     asked"},
                                  {", in use", ",\n~     in use"}})
    for (size_t at = line.find(end); at != line.npos; at = line.find(end, at + strlen(next)))
      line.replace(at, strlen(end), next);
  lesson.say("~ " + line);
  const auto say_last = [&] {
    if (!last.empty()) lesson.say("~ " + std::exchange(last, ""));
  };
  while ((calls || all) && std::getline(lines, line)) {
    if (all || !line.starts_with("  ")) say_last();
    last = line;
    if (!line.starts_with("  ")) say_last();
  }
  say_last();
}

// The number that follows `before` in the text; -1: none does.
inline int64_t number_after(const std::string& before, const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(before + "([0-9]+)")) ? std::stoll(found[1])
                                                                         : -1;
}

}  // namespace zl::lesson
