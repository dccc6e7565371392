// A run that can start: flags and configuration combined, model and data opened.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/data/windows.h"
#include "nn/formats/weights.h"
#include "stages/deepspeed/config.h"
#include "stages/train/gpt_spec.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

// The settings of config file, --set and flags; a flag wins over --set, --set over the file. Prints
// all findings to stderr, also notes about values that a flag replaces or that the command ignores.
// Throws InputError if a finding is an error.
LoadedConfig load_settings(const RunOptions& options, int ranks);

struct ModelChoice {
  GptConfig model;
  int64_t window = 0;  // T of a micro-batch, at most the model's positions
  std::string name;    // "small", "tiny, changed by flags", "runs/a/model.safetensors"
  std::shared_ptr<const GptWeights> weights;  // to start from; null: initial values
};

// The sizes come from --init-from if it is given, a file or a folder (see open_weights; the number
// of heads is in the files, or else --n-head), else from the named model, else from the default
// model; size flags override single values of a model without a file. Throws InputError if a size
// flag or a named model contradicts the file; only the sequence may be shorter than the file's
// positions.
ModelChoice choose_model(const RunOptions& options, const LoadedConfig& loaded);

// The model, the settings and the limits of a run, without data and ranks.
GptTrainingSpec spec_of(const RunOptions& options, const ModelChoice& model, const Config& config);

struct RunSetup {
  Config config;
  std::vector<ConfigValue> values;  // of the keys that this configuration uses
  GptTrainingSpec spec;             // points into the windows below
  DeviceChoice device;
  BackendChoice backend;
  ModelChoice model;
  std::unique_ptr<const Windows> windows;
};

// Loads the settings, and opens and checks model, weights and data. `ranks` is used if neither
// --ranks nor a launcher gives their number.
RunSetup set_up_run(const RunOptions& options, int ranks,
                    const std::optional<LaunchedRank>& process = {});

// ---- Checked before a run starts, so that it does not end in the middle (preflight.cpp) ---------

// By a dry run of each of these stages. Throws OutOfMemory if one needs more than this machine or
// one of its GPUs has, and InputError if nvme_path has no room: the system would otherwise kill the
// run in the middle. The ranks of this machine count together. Returns what rank 0 needs in the
// last stage. Limits of --device-memory and --host-memory are left to the run, which names the
// unit.
RankReport require_memory(const TrainingSpec& spec, const RunSetup& setup,
                          const std::vector<StageKind>& stages);

// Throws OutOfMemory if a rank needs more host memory than --host-memory; with that of a save,
// which may begin long after the start.
void require_host_limit(const TrainingSpec& spec, const RankReport& dry);

// Four lines about a run: model, data, ranks and batch, update; more for groups, GPUs, processes
// and a simulated link. `compared`: the stages that run instead of the setup's.
std::string describe(const RunSetup& setup, const std::vector<StageKind>& compared = {});

}  // namespace zl::cli
