// The folder of --out: whether a run may begin or go on there, and metrics.jsonl in it.
#pragma once

#include <cstdint>
#include <string>

#include "stages/train/trainer.h"
#include "tensor/io/file_calls.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

// Fills in the folders that follow from each other: --resume without DIR takes --out, and --resume
// DIR without --out goes on in DIR. Throws UsageError if one is missing.
void complete_checkpoint_flags(RunOptions& options);
// Whether the run goes on in the folder of the checkpoint that it begins with.
bool resumes_in_place(const RunOptions& options);
// Throws InputError, before any time is spent, where there is no checkpoint and the run must not
// begin at its start: --resume names another folder than --out, or --out holds the weights of a
// run; or where a run that ends at `steps` would replace results of later steps. Returns a note if
// the run begins at its start, or "".
std::string check_resume(const RunOptions& options, int64_t steps);

// A folder that must not hold a run yet, neither of train nor of compare; except that `resume` goes
// on with a run of train.
class RunFolder {
 public:
  enum class For { compare, train, resume };
  // Creates the folder and its parents. Throws InputError, before any time is spent, if it cannot
  // be written to, or holds a file or a checkpoint of another run.
  RunFolder(const std::string& path, For use);
  ~RunFolder();  // removes the folder if it created it and it is empty
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  std::string file(const std::string& name) const;

 private:
  std::string run_in_it(For use) const;

  const std::string path_;
  bool created_ = false;
};

// Throws InputError if `path`, which `what` names, is a file or folder that a run writes into
// `out`, or is in one.
void require_apart(const std::string& what, const std::string& path, const std::string& out);

// Writes model.safetensors of a GPT, completely or not at all. Every rank must call it; rank 0, and
// only if `path` is not "", writes. Throws OutputError.
void save_weights(Trainer& training, const std::string& path);

// One JSON object of one step: numbers that are read back as the same double, null for those that
// are not finite, without a line end.
std::string metrics_line(const StepRecord& record);

// metrics.jsonl: one line for each step. A run without a step leaves no file.
class Metrics {
 public:
  // Throws InputError if `path` is no regular file, or another process writes it, and OutputError
  // if it cannot be created, or exists and is not to be `continued`.
  Metrics(const std::string& path, bool continued);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Removes the lines of later steps than `step`, and what was cut off or damaged. Returns the step
  // of the last line that is left, or 0. To be called before the first append() to an old file.
  // Throws OutputError.
  int64_t keep_until(int64_t step);
  // Each line is in the file when append() returns, and durable after sync(). If the disk is full,
  // the file ends with the line before; both throw OutputError once, and then do nothing.
  void append(const StepRecord& record);
  void sync();

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  WrittenFile file_;
  int64_t bytes_ = 0;  // [B] of complete lines
  bool failed_ = false;
};

}  // namespace zl::cli
