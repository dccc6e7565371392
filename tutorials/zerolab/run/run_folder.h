// The folder of --out, and metrics.jsonl in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stages/train/trainer.h"

namespace zl::cli {

// A folder that must not hold a run yet, neither of train nor of compare; except that `resume` goes
// on with a run of train.
class RunFolder {
 public:
  enum class For { compare, train, resume };
  // Creates the folder and its parents. Throws InputError, before any time is spent, if it cannot
  // be written to, or holds a file or a checkpoint of another run.
  RunFolder(const std::string& path, For use);
  ~RunFolder();  // removes the folders that it created if they are empty
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const;

  // The files of a run, by their names in the folder.
  static const std::vector<std::string>& names();

 private:
  std::string run_in_it(For use) const;

  const std::string path_;
  std::vector<std::string> created_;  // outermost first
};

// Throws InputError if `path`, which `what` names, is a file or folder that a run writes into
// `out`, or is in one.
void require_apart(const std::string& what, const std::string& path, const std::string& out);

// One JSON object of one step: numbers that are read back as the same double, null for those that
// are not finite, without a line end.
std::string metrics_line(const StepRecord& record);

// The lines of metrics.jsonl up to `step`, without what was cut off or damaged.
struct MetricsLines {
  int64_t last = 0, bytes = 0;  // the step of the last one, 0: none; [B] of all
};
MetricsLines metrics_until(const std::string& path, int64_t step);

// metrics.jsonl: one line for each step.
class Metrics {
 public:
  // Throws InputError if `path` cannot be created, or exists and is not to be `continued`.
  explicit Metrics(std::string path, bool continued = false);
  ~Metrics();  // a run without a step leaves no file
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Removes the lines of later steps than `step`, and what was cut off or damaged. Returns the step
  // of the last line that is left, or 0. To be called before the first append() to an old file.
  // Throws OutputError.
  int64_t keep_until(int64_t step);
  // Makes the lines durable.
  void sync();
  // Appends one line, which is in the file when this returns. If the disk is full, the file ends
  // with the line before, further calls do nothing, and problem() says why.
  void append(const StepRecord& record);

  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }  // "" if there is none

 private:
  void lock() const;  // against other processes

  const std::string path_;
  std::string problem_;
  int file_ = -1;
  int64_t bytes_ = 0;  // [B] of complete lines
};

}  // namespace zl::cli
