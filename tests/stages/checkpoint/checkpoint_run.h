// Runs of a small GPT that save and load checkpoints, and what tests compare of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"
#include "tests/nn/scratch_folder.h"

namespace zl::test {

// Without fsync, which takes most of the time of a small save.
class QuickFiles : public FileCalls {
 public:
  int fsync(int) override { return 0; }
};
FileCalls& quick_files();

// A text that repeats after no window.
Windows text_in_windows(int64_t tokens);
const Windows& checkpoint_text();

// 2 blocks, odd sizes; saves every step into `folder`, and keeps all.
GptTrainingSpec checkpoint_spec(const std::string& folder, StageKind stage, int ranks);

// The bytes of each data file of a checkpoint; equal for equal states.
using DataFiles = std::map<std::string, std::string>;
DataFiles data_files(const std::string& checkpoint);
std::string read_file(const std::string& path);

struct Bits {
  std::vector<double> losses, norms;  // of each step
  std::vector<float> weights;
  std::vector<bool> skipped;
  bool operator==(const Bits&) const = default;
};
// Runs the spec to its end.
Bits train_bits(const TrainingSpec& spec, TrainingCallbacks callbacks = {},
                TrainingResult* result = nullptr);
// The checkpoint after the last step of `spec`, from a run that begins at its start.
std::string trained(const ScratchFolder& scratch, TrainingSpec spec);

// Loads `checkpoint` with the spec's stage and ranks, makes no step, and saves into `folder`.
// Returns the new checkpoint's path.
std::string load_and_save(TrainingSpec spec, const std::string& checkpoint,
                          const std::string& folder);

}  // namespace zl::test
