// What every lesson shares: its flags, numbers that the learner may predict, checks, --step, and
// the last line.
//
//   int main(int argc, char** argv) {
//     return zl::lesson::run(argc, argv, {.name = "06_zero1", .question = "Who updates which
//     parameter?"}, [](zl::lesson::Lesson& lesson) {
//       lesson.run_ranks(lesson.ranks(), [&](zl::Communicator& comm) { … });
//       lesson.number("optimizer_bytes", measured, 8 * padded / lesson.ranks(), "8 B x padded /
//       N");
//     });
//   }
//
// A lesson prints what it measured and checks each number against a formula that it computes from
// the sizes alone. A line that begins with "~" depends on the machine; all others are the same
// everywhere, so that the chapters can quote them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/run_ranks.h"
#include "stages/stage.h"

namespace zl::lesson {

// A flag of one lesson's own.
struct Flag {
  std::string name;      // "--buckets"
  std::string argument;  // "N"; empty: a switch
  std::string help;
  std::string value = {};                 // unless it is given
  int64_t least = 0, most = 0;            // most > 0: it is a whole number from `least` to `most`
  std::vector<std::string> choices = {};  // not empty: it is one of these
};

struct About {
  std::string name;               // "06_zero1", as the program
  std::string question;           // the one question that it answers
  int ranks = 4, most_ranks = 8;  // unless --ranks says otherwise, and at most
  std::vector<Flag> flags = {};
};

// What the learner gave, and what came of the run so far. say(), number() and check() may be called
// by several ranks, but numbers and checks of ranks come in no certain order: collect them, and
// tell them after run_ranks().
class Lesson {
 public:
  int ranks() const;
  uint64_t seed() const;
  bool quiet() const;     // nothing but the last line is printed: --quiet or --json
  bool stepping() const;  // --step

  // Of the lesson's own flags. Each throws std::invalid_argument if About has no such flag.
  bool on(const std::string& flag) const;            // a switch that was given
  std::string value(const std::string& flag) const;  // as given, else its default
  int64_t count(const std::string& flag) const;      // the same, of a whole number

  // One line to stdout. Nothing with --quiet or --json.
  void say(const std::string& line = "");
  // One number of the lesson. Asks for it first if --predict says so, shows it with `formula`, and
  // judges the prediction. Measured and expected must be equal, or the lesson fails. `key` is a
  // word for --predict; no two numbers share one.
  void number(const std::string& key, int64_t measured, int64_t expected,
              const std::string& formula);
  // The same within `tolerance` (absolute): says where it comes from in `formula`.
  void number(const std::string& key, double measured, double expected, double tolerance,
              const std::string& formula);
  // A claim that must hold, or the lesson fails.
  void check(const std::string& claim, bool holds);

  // zl::run_ranks for lessons: without a deadline while stepping.
  void run_ranks(int size, const std::function<void(Communicator&)>& body);
  // The same as a function, for TrainingSpec::run_ranks.
  RunRanks runner();

  // With --step: from now on all ranks stop together at each named event: a phase, an event of a
  // unit, the end of a collective of all ranks. Every rank must call it, and have the same named
  // events in the same order. Without --step it does nothing. Everything given must live until the
  // body ends, or until unwatch() or the next watch().
  void watch(Communicator& comm, Memory& memory, const Stage* stage = nullptr,
             const std::vector<Unit>* units = nullptr);
  // From now on the rank stops no more. Every rank must call it at the same place.
  void unwatch(Communicator& comm);

  struct State;  // of lesson.cpp
  explicit Lesson(State& state) : state_(state) {}

 private:
  State& state_;
};

// Parses the flags, runs `body`, prints "RESULT 06_zero1 PASS k/k", or "FAIL j/k", as the last line
// of stdout. Returns the exit code: 0; 1 if a check failed; 2 for flags and sizes that make no
// sense (also InputError of `body`); 3 out of memory; 4 communication failure; 70 any other error;
// 130 if --step was left with q.
int run(int argc, const char* const* argv, const About& about,
        const std::function<void(Lesson&)>& body);

// "57,600": whole numbers as lessons print them.
std::string with_commas(int64_t number);

}  // namespace zl::lesson
