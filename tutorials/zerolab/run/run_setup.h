// What the flags and a config file add up to: a run that can start.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/data/windows.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/options.h"
#include "tutorials/zerolab/run/backend_choice.h"
#include "tutorials/zerolab/run/device_choice.h"
#include "tutorials/zerolab/run/model_choice.h"

namespace zl::cli {

struct RunSetup {
  TrainingSpec spec;  // points into the windows below
  DeviceChoice device;
  BackendChoice backend;
  ModelChoice model;
  std::unique_ptr<const Windows> windows;
};

// The settings of config file, --set and flags, in rising order of precedence. What there is to say
// about them goes to stderr, also that a flag changes the file's value. Throws InputError, after
// all findings, if one is an error.
LoadedConfig load_settings(const RunOptions& options, int ranks);

// The model that the file or --set names, unless --model does.
std::optional<ConfiguredModel> configured_model(const RunOptions& options,
                                                const LoadedConfig& loaded);

// load_settings, with model, weights and data opened and checked. `ranks`: if --ranks was not
// given, and no launcher says.
RunSetup set_up_run(const RunOptions& options, int ranks,
                    const std::optional<LaunchedRank>& process = {});

// Throws OutOfMemory if all ranks together do not fit this machine, or those of a GPU that GPU,
// under one of `stages`, or what offload_optimizer moves does not fit --host-memory. Better than to
// be killed by the system in the middle.
void require_memory(const TrainingSpec& spec, const RunSetup& setup,
                    const std::vector<StageKind>& stages);

// What will be run, in four lines: model, data, ranks and batch, update; on GPUs, a fifth says
// which, and another one if NCCL is between them. `stages`: instead of the setup's stage.
std::string describe(const RunSetup& setup, const std::string& stages = "");

// "fp32", "bf16", "fp16".
const char* precision_name(Dtype dtype);

// Writes one line to stderr if the settings ask for reports that only train makes; `command` makes
// none of them.
void note_reports_of_train(const Config& config, const char* command);

// "842,496": for people.
std::string with_commas(int64_t number);

}  // namespace zl::cli
