// What every lesson shares: flags, numbers that the learner may predict, checks, --step, and the
// last line of output.
//
//   int main(int argc, char** argv) {
//     const About about{.name = "06_zero1", .question = "Who updates which parameter?"};
//     return run(argc, argv, about, [](Lesson& lesson) {
//       lesson.run_ranks(lesson.ranks(), [&](zl::Communicator& comm) { … });
//       lesson.number("optimizer_bytes", measured, 8 * padded / N, "8 B x padded / N");
//     });
//   }
//
// A lesson prints what it measured and checks each number against a formula that it computes from
// sizes alone. A line that begins with "~" depends on the machine; all others are the same
// everywhere, so that chapters can quote them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "dist/run_ranks.h"
#include "tensor/backend.h"
#include "tutorials/lesson/options.h"
#include "tutorials/recording/recording.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::lesson {

using recording::Recording;
using recording::Row;

// Several ranks may call say(). Numbers and checks of ranks have no fixed order: collect values in
// the ranks and call number() and check() after run_ranks().
class Lesson {
 public:
  Lesson(const About& about, Options options);
  int ranks() const { return options_.ranks; }
  uint64_t seed() const { return options_.seed; }
  // What it computes on: the kernels of the CPU, or, with --device reference, their textbook form.
  bool on_reference() const { return options_.device == "reference"; }
  Backend& backend() const { return on_reference() ? reference_backend() : cpu_backend(); }
  // The value of a flag that About adds; of a switch 0 or 1. Throws std::out_of_range for others.
  int64_t count(const std::string& flag) const { return options_.own.at(flag); }
  bool on(const std::string& flag) const { return count(flag) > 0; }

  // Prints one line. Nothing with --quiet or --json.
  void say(const std::string& line = "");
  // Shows a number with its formula; the lesson fails unless both are equal. With --predict asks
  // for the number first and judges the answer. `key` names it there and must be unique.
  void number(const std::string& key, int64_t measured, int64_t expected,
              const std::string& formula);
  // The same within an absolute tolerance, whose source belongs into `formula`.
  void number(const std::string& key, double measured, double expected, double tolerance,
              const std::string& formula);
  // A claim that must hold, or the lesson fails.
  void check(const std::string& claim, bool holds);

  // Runs `body` once per rank, as zl::run_ranks. With --step shows what was recorded, also if a
  // rank failed.
  void run_ranks(int size, const std::function<void(Communicator&)>& body,
                 RankOptions options = {});
  // Of the current run_ranks(), or of the last one. A rank that calls its watch() is recorded.
  Recording& recording() { return recording_; }

  // Prints the result and returns the exit code.
  int finish();

 private:
  struct Results;
  template <class T>
  void add(const std::string& key, T measured, T expected, double tolerance,
           const std::string& formula);
  std::optional<double> prediction_for(const std::string& key) const;
  bool silent() const { return options_.quiet || options_.json; }

  const About& about_;
  Options options_;
  Recording recording_;
  int64_t events_ = 0;  // shown by --step
  std::mutex printing_;
  std::shared_ptr<Results> results_;  // so far
};

// Parses the flags, runs `body` and prints "RESULT 06_zero1 PASS k/k", or "FAIL j/k", as the last
// line of stdout. Returns the exit code: 0; 1 a check failed; 2 wrong usage, and InputError of
// `body`; 3 out of memory; 4 communication failure; 70 any other error; 74 the output cannot be
// written; 130 left in --step. Those of errors are the program's. Then stderr has one line, with
// one sentence or what to try behind it, and stdout no RESULT.
int run(int argc, const char* const* argv, const About& about,
        const std::function<void(Lesson&)>& body);

using cli::with_commas;

}  // namespace zl::lesson
