// The folder of --out: metrics.jsonl, one line per step, and model.safetensors.
#pragma once

#include <string>

#include "stages/train/trainer.h"

namespace zl::cli {

// The object of one step, as it stands in metrics.jsonl: numbers that read back as the same double,
// null for those that are not finite, without a line end.
std::string metrics_line(const StepRecord& record);

class RunFolder {
 public:
  // Creates the folder with its parents, or takes one that holds no run, and opens metrics.jsonl.
  // Throws InputError if that cannot be, before any time was spent on training.
  explicit RunFolder(const std::string& path);
  ~RunFolder();  // a run without a step leaves no metrics.jsonl
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Appends one line; it is in the file when this returns. Throws InputError if the disk is full,
  // without half a line.
  void append(const StepRecord& record);

  const std::string& metrics() const { return metrics_; }
  const std::string& weights() const { return weights_; }

 private:
  std::string metrics_, weights_;
  int file_ = -1;
  int64_t bytes_ = 0;  // [B] of whole lines
};

}  // namespace zl::cli
