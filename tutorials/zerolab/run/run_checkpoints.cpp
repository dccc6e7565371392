#include "tutorials/zerolab/run/run_checkpoints.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/error.h"
#include "tensor/io/json_check.h"
#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestReport = 1 << 30;  // [B]

// "runs/a" for "runs/a/step-00000100", and "." for "step-00000100".
std::string parent_of(const std::string& path) {
  std::error_code error;
  fs::path normal = fs::path(path).lexically_normal();
  if (normal == "." || normal.filename() == "..") normal = fs::canonical(path, error);
  if (!normal.has_filename()) normal = normal.parent_path();  // "runs/a/"
  return normal.has_parent_path() ? normal.parent_path().string() : ".";
}

// The last step of the run of train that ended in this folder, and left its weights; 0: none did.
// While a run goes on, its report.json has no document.
int64_t ended_at(const fs::path& out) {
  std::error_code error;
  const fs::path path = out / "report.json";
  if (!fs::exists(out / "model.safetensors", error) || !fs::exists(path, error)) return 0;
  const std::string text = read_small_file(path.string(), {"report", kLargestReport});
  const auto report = is_json(text) ? nlohmann::json::parse(text) : nlohmann::json();
  const nlohmann::json::json_pointer steps("/document/steps");
  const bool ended = report.contains(steps) && report[steps].is_number_integer();
  return ended ? report[steps].get<int64_t>() : 0;
}

// Of a run in `out` that begins after step `first` and ends at `last`: it must not replace results
// of later steps that it does not continue.
void require_nothing_later(const std::string& out, int64_t first, int64_t last) {
  const auto refuse = [&](bool there, const char* what, int64_t step) {
    require_input(!there, out, " holds ", what, " of step ", step,
                  ", but this run begins after step ", first, " and ends at ", last,
                  "; resume from the newest checkpoint with more --steps, or give another --out");
  };
  const int64_t saved = newest_checkpoint(out).manifest.position.step, ended = ended_at(out);
  refuse(saved > first, "a checkpoint", saved);
  refuse(ended > std::max(first, last), "weights (model.safetensors)", ended);
  const int64_t metrics = metrics_until((fs::path(out) / "metrics.jsonl").string(), INT64_MAX).last;
  refuse(metrics > std::max(first, last), "metrics", metrics);
}

void require_flag(bool given, const char* flag, bool needed, const char* needs) {
  if (given && !needed)
    throw UsageError(str(flag, " has no effect without ", needs, "; give both or leave it out"));
}

}  // namespace

void complete_checkpoint_flags(RunOptions& options) {
  CheckpointFlags& flags = options.checkpoint;
  const bool saves = flags.save_every.has_value();
  require_flag(flags.keep.has_value(), "--keep", saves, "--save-every K");
  require_flag(flags.writes.has_value(), "--checkpoint-writes", saves, "--save-every K");
  require_flag(flags.new_data, "--new-data", flags.resume.has_value(), "--resume");
  if (flags.resume && flags.resume->empty()) {
    if (options.out.empty())
      throw UsageError("--resume needs the folder of the run: --resume DIR, or --out DIR --resume");
    flags.resume = options.out;
  }
  if (flags.resume && options.out.empty())
    options.out = is_checkpoint(*flags.resume) ? parent_of(*flags.resume) : *flags.resume;
  if (!options.out.empty() && fs::exists(fs::path(options.out) / "checkpoint.json"))
    throw UsageError(str("--out ", options.out,
                         " is a checkpoint; name a folder for the run, such as ",
                         parent_of(options.out)));
  if (saves && options.out.empty())
    throw UsageError("--save-every needs --out DIR, the folder that gets the checkpoints");
}

CheckpointOptions checkpoint_options(const RunOptions& options) {
  const CheckpointFlags& flags = options.checkpoint;
  CheckpointOptions checkpoint;
  checkpoint.folder = options.out;
  checkpoint.save_every = flags.save_every.value_or(0);
  checkpoint.keep = flags.keep.value_or(checkpoint.keep);
  checkpoint.writes = flags.writes.value_or(checkpoint.writes);
  checkpoint.resume = flags.resume.value_or("");
  checkpoint.new_data = flags.new_data;
  return checkpoint;
}

bool resumes_in_place(const RunOptions& options) {
  const std::optional<std::string>& resume = options.checkpoint.resume;
  return resume && (same_file(*resume, options.out) ||
                    (is_checkpoint(*resume) && same_file(parent_of(*resume), options.out)));
}

std::string check_resume(const RunOptions& options, int64_t steps) {
  if (!options.checkpoint.resume) return "";
  const std::string& resume = *options.checkpoint.resume;
  const NewestCheckpoint newest = newest_checkpoint(resume);
  if (newest.path.empty() && !newest.rejected.empty()) return "";  // the run names broken ones
  const std::string weights = (fs::path(options.out) / "model.safetensors").string();
  const bool none = newest.path.empty(), in_place = resumes_in_place(options);
  require_input(!none || in_place, "--resume ", resume, ": no checkpoint is there");
  require_input(!none || !fs::exists(weights), "--resume: ", options.out,
                " holds the weights of a run (model.safetensors), but no checkpoint to go on from; "
                "choose another --out, and --init-from ",
                weights, " to start from these weights");
  if (in_place) require_nothing_later(options.out, newest.manifest.position.step, steps);
  return none ? str("no checkpoint is in ", resume, " yet, so training begins at the start") : "";
}

}  // namespace zl::cli
