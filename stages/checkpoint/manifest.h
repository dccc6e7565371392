// checkpoint.json: everything in a checkpoint but the tensors, and the checksums of its files.
//
//   zerolab                   the version of this format, 1
//   step, updates             steps made, and those of them that were not skipped
//   data, next_window         which data, and the first row that was not read yet
//   loss_scaler               its state in fp16, otherwise null
//   model, optimizer, seed    a resume compares them with its own
//   files                     of each: its bytes, its checksum, and those of its tensors
//   saved_by                  stage, ranks and settings of the run that saved it, for people
//   crc32c                    the checksum of all of the above
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "optim/flat_optimizer.h"
#include "optim/loss_scaler.h"
#include "stages/checkpoint/checkpoint.h"
#include "stages/options.h"

namespace zl {

// A data file. All checksums are CRC-32C, as crc_text() writes them.
struct ManifestFile {
  int64_t bytes = 0;                           // [B] of the whole file
  std::string crc32c;                          // of the whole file
  std::map<std::string, std::string> tensors;  // the checksum of each
};

struct Manifest {
  RunPosition position;
  int64_t updates = 0;  // of the optimizer; skipped steps do not count
  std::optional<LossScaler::State> loss_scaler;
  uint64_t seed = 0;
  std::map<std::string, std::string> model;  // "name", and Model::metadata()
  OptimizerConfig optimizer;
  std::map<std::string, ManifestFile> files;    // by name
  std::map<std::string, std::string> saved_by;  // stage, ranks, update_settings()
  int64_t bytes() const;                        // [B] of all data files
};

// The text ends with a checksum of the rest, so parse_manifest() finds every change that has a
// meaning. `path` is for its errors, which are InputErrors.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(const std::string& path, const std::string& text);

// "AdamW with betas 0.9 0.999, …"; the two texts differ where another state or update follows.
std::string describe(const OptimizerConfig& optimizer);
// "0.001", or "0 to 0.01 in 10 steps (log), to 0 at step 100", with `warmup` in the brackets.
std::string describe(const ScheduleConfig& schedule, double lr, const char* warmup);
// The settings beside the optimizer's that decide the updates, for people: a manifest's saved_by
// has them, and a resume names those that differ.
std::map<std::string, std::string> update_settings(const Options& options);

}  // namespace zl
