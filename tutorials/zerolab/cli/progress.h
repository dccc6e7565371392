// The progress of a run on stderr: one line that is rewritten on a terminal, elsewhere about twenty
// plain lines.
#pragma once

#include <chrono>
#include <string>

#include "stages/train/trainer.h"
#include "tutorials/terminal/terminal.h"

namespace zl::cli {

class Progress {
 public:
  // Over training steps, or `steps` other pieces of work, about which it prints nothing if `quiet`.
  // `label` begins each line of a step, such as the stage that runs; it may be empty.
  explicit Progress(int64_t steps, bool quiet = false, const std::string& label = "");
  ~Progress();  // leaves the cursor at the start of a line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void begin_after(int64_t steps);     // that were made before, which took none of this time
  void item(const std::string& name);  // the next item begins: "3/12 gelu, ETA 4s"
  void clear();                        // removes the line that is written over
  void step(const StepRecord& record);
  // Prints one or more lines that stay; on a terminal progress goes on below them.
  void line(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& line);
  std::string eta(double done, double left) const;  // ", ETA 4s" or ""

  Terminal terminal_;
  bool quiet_ = false;
  int64_t items_ = 0;      // that have begun
  int64_t steps_, every_;  // plain lines: every how many steps
  int64_t before_ = 0;     // steps of begin_after()
  std::string label_;      // with a space behind it, or ""
  Clock::time_point begin_ = Clock::now(), drawn_;
  double tokens_ = 0, seconds_ = 0;  // of the steps so far
  bool line_open_ = false;
};

}  // namespace zl::cli
