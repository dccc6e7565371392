// How a run goes, on stderr: one line that is written over on a terminal, elsewhere about twenty
// plain lines.
#pragma once

#include <chrono>
#include <deque>
#include <string>

#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/terminal.h"

namespace zl::cli {

class Progress {
 public:
  // `label` stands before each line, such as the stage that runs; it may be empty.
  Progress(const Terminal& terminal, int64_t steps, std::string label = "");
  ~Progress();  // leaves the cursor at the start of a line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepRecord& record);
  // Another line, or several, that stays; on a terminal the line that is written over goes on
  // below.
  void line(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  std::string numbers(const StepRecord& record) const;
  std::string bar(int64_t step, int width) const;
  double seconds_left(int64_t step) const;
  void rewrite(const StepRecord& record);
  void name_culprit(const StepRecord& record);

  Terminal terminal_;
  int64_t steps_, every_;  // plain lines: every how many steps
  std::string label_;
  Clock::time_point begin_, drawn_;
  struct Recent {
    int64_t tokens;
    double seconds;
  };
  std::deque<Recent> recent_;  // the last steps, for the speed
  bool line_open_ = false;
};

// "23.9k", "512", "1.2M": for people.
std::string short_number(double value);
// "3s", "2m 05s", "1h 02m".
std::string short_time(double seconds);
// The number with `digits` significant digits; "-" if it is not finite.
std::string digits(double value, int digits);

}  // namespace zl::cli
