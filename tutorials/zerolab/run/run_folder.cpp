#include "tutorials/zerolab/run/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "nn/formats/weights.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/train/weights.h"
#include "tensor/io/small_file.h"
#include "tensor/kernels.h"
#include "tutorials/zerolab/cli/output_file.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The files of a run, by their names in the folder.
constexpr const char* kNames[] = {"metrics.jsonl", "model.safetensors", "compare.json",
                                  "report.json", "report.html"};

// The lines of metrics.jsonl up to `step`, without what was cut off or damaged.
struct MetricsLines {
  int64_t last = 0, bytes = 0;  // the step of the last one, 0: none; [B] of all
};
MetricsLines metrics_until(const std::string& path, int64_t step) {
  std::ifstream file(path, std::ios::binary);
  MetricsLines lines;
  for (std::string line; std::getline(file, line) && !file.eof();) {  // at the end: a cut-off line
    const Json json = is_json(line) ? Json::parse(line) : Json();
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) break;
    const int64_t of_line = json["step"];
    if (of_line > step || of_line <= lines.last) break;
    lines.last = of_line;
    lines.bytes += int64_t(line.size()) + 1;
  }
  return lines;
}

// "runs/a" for "runs/a/step-00000100", and "." for "step-00000100".
std::string parent_of(const std::string& path) {
  std::error_code error;
  fs::path normal = fs::path(path).lexically_normal();
  if (normal == "." || normal.filename() == "..") normal = fs::canonical(path, error);
  if (!normal.has_filename()) normal = normal.parent_path();  // "runs/a/"
  return normal.has_parent_path() ? normal.parent_path().string() : ".";
}

// The folder of the run: --resume names it, or one of its checkpoints.
std::string run_of(const std::string& resume) {
  return is_checkpoint(resume) ? parent_of(resume) : resume;
}

// Of a run in `out` that begins after step `first` and ends at `last`: it must not replace results
// of later steps that it does not continue.
void require_nothing_later(const std::string& out, int64_t first, int64_t last) {
  const std::string metrics = (fs::path(out) / "metrics.jsonl").string();
  for (const auto& [step, most, what] :
       {std::tuple(newest_checkpoint(out).manifest.position.step, first, "a checkpoint"),
        {metrics_until(metrics, std::numeric_limits<int64_t>::max()).last, std::max(first, last),
         "metrics"}})
    require_input(step <= most, out, " holds ", what, " of step ", step,
                  ", but this run begins after step ", first, " and ends at ", last,
                  "; resume from the newest checkpoint and give --steps above ", step,
                  ", or give another --out");
}

}  // namespace

void complete_checkpoint_flags(RunOptions& options) {
  std::optional<std::string>& resume = options.resume;
  if (resume && resume->empty()) {
    if (options.out.empty())
      throw UsageError("--resume needs the folder of the run: --resume DIR, or --out DIR --resume");
    resume = options.out;
  }
  if (resume && options.out.empty()) {
    if (!is_checkpoint(*resume) && !fs::exists(*resume))
      throw UsageError(str("--resume ", *resume, ": there is no such folder; '--out ", *resume,
                           " --resume' begins a run where there is none yet"));
    options.out = run_of(*resume);
  }
  if (!options.out.empty() && fs::exists(fs::path(options.out) / "checkpoint.json"))
    throw UsageError(str("--out ", options.out,
                         " is a checkpoint; name a folder for the run, such as ",
                         parent_of(options.out)));
  if (options.spec.checkpoint.save_every > 0 && options.out.empty())
    throw UsageError("--save-every needs --out DIR, the folder that gets the checkpoints");
  options.spec.checkpoint.folder = options.out;
  options.spec.checkpoint.resume = resume.value_or("");
}

bool resumes_in_place(const RunOptions& options) {
  const std::string& resume = options.spec.checkpoint.resume;
  return !resume.empty() && same_file(run_of(resume), options.out);
}

std::string check_resume(const RunOptions& options, int64_t steps) {
  const std::string& resume = options.spec.checkpoint.resume;
  if (resume.empty()) return "";
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

// The name of a file that keeps the folder from being used, or "".
std::string RunFolder::run_in_it(For use) const {
  std::error_code error;
  const std::vector<CheckpointPath> checkpoints = list_checkpoints(path_);
  const bool goes_on = !checkpoints.empty() || fs::exists(file("metrics.jsonl"), error);
  for (const std::string name : kNames) {
    const bool of_report = name == "report.json" || name == "report.html";
    if (use == For::resume && name != "compare.json" && (goes_on || !of_report)) continue;
    if (fs::exists(fs::symlink_status(file(name), error))) return name;
  }
  if (use == For::resume || checkpoints.empty()) return "";
  return fs::path(checkpoints.back().path).filename().string();
}

RunFolder::RunFolder(const std::string& path, For use) : path_(path) {
  std::error_code error;
  require_input(!fs::exists(path, error) || fs::is_directory(path, error), "--out ", path,
                " is a file; name a folder");
  const std::string found = run_in_it(use);
  const bool resumable = use == For::train && !list_checkpoints(path).empty();
  require_input(found.empty(), "--out ", path, " already holds a run (", found, "); ",
                resumable ? "add --resume to go on with it, " : "",
                "choose another folder, or remove that one");
  created_ = fs::create_directories(path, error);
  require_input(!error, "--out ", path, " cannot be created: ", error.message());
  require_input(access(path.c_str(), W_OK | X_OK) == 0, "--out ", path,
                " cannot be written to: ", std::strerror(errno));
}

RunFolder::~RunFolder() {
  if (created_) rmdir(path_.c_str());  // fails if there is a file in it
}

std::string RunFolder::file(const std::string& name) const {
  return (fs::path(path_) / name).string();
}

void require_apart(const std::string& what, const std::string& path, const std::string& out) {
  if (path.empty() || out.empty()) return;
  const fs::path inside = resolved_path(path).lexically_relative(resolved_path(out));
  const std::string name = inside.empty() ? "" : inside.begin()->string();
  const bool taken =
      std::ranges::count(kNames, name) > 0 || name == "latest" || name.starts_with("step-");
  require_input(!taken, what, ": '", path, "' is, or is inside, a file or folder of --out ", out,
                "; give another name");
}

void save_weights(Trainer& training, const std::string& path) {
  std::map<std::string, std::vector<float>> values;
  const bool saves = training.comm().rank() == 0 && !path.empty();
  visit_weights(training.engine().stage(), [&](const Parameter& p, const Tensor& data) {
    if (saves) values[p.name] = kernel::download_floats(data);
  });
  if (!saves) return;
  save_safetensors_weights(path, static_cast<Gpt&>(training.model()).config(),
                           [&](const std::string& name) { return values.at(name); });
}

std::string metrics_line(const StepRecord& record) {
  Json line{{"step", record.step}, {"loss", record.loss},     {"grad_norm", record.grad_norm},
            {"lr", record.lr},     {"tokens", record.tokens}, {"seconds", record.seconds}};
  if (record.eval_loss) line["eval_loss"] = *record.eval_loss;
  if (record.skipped) line["skipped"] = true;
  if (record.loss_scale) line["loss_scale"] = *record.loss_scale;
  return line.dump();
}

Metrics::Metrics(const std::string& path, bool continued)
    : path_(path),
      file_(system_file_calls(), path, O_WRONLY | O_CREAT | (continued ? O_NONBLOCK : O_EXCL)) {
  struct stat status = {};
  fstat(file_.descriptor(), &status);
  require_input(S_ISREG(status.st_mode), path_,
                " is not a regular file; remove it, or choose another --out");
  require_input(lock_against_other_processes(file_.descriptor()), path_,
                ": another process writes into this folder; wait for its end, or choose another "
                "--out");
  bytes_ = status.st_size;
}

Metrics::~Metrics() {
  if (bytes_ == 0) unlink(path_.c_str());
}

int64_t Metrics::keep_until(int64_t step) {
  const MetricsLines lines = metrics_until(path_, step);
  bytes_ = lines.bytes;
  if (ftruncate(file_.descriptor(), bytes_) != 0) file_.fail("cannot be shortened");
  return lines.last;
}

void Metrics::sync() {
  if (std::exchange(failed_, true)) return;
  file_.sync();
  failed_ = false;
}

void Metrics::append(const StepRecord& record) {
  if (std::exchange(failed_, true)) return;
  const std::string line = metrics_line(record) + "\n";
  try {
    file_.write(std::as_bytes(std::span(line)), bytes_);
  } catch (const OutputError&) {
    (void)!ftruncate(file_.descriptor(), bytes_);
    throw;
  }
  bytes_ += std::ssize(line);
  failed_ = false;
}

}  // namespace zl::cli
