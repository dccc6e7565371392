#include "tutorials/zerolab/run/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "stages/checkpoint/checkpoint_folder.h"
#include "tensor/io/file_calls.h"
#include "tensor/io/json_check.h"
#include "tutorials/zerolab/cli/output_file.h"

namespace zl::cli {
namespace fs = std::filesystem;

// The name of a file that keeps the folder from being used, or "".
std::string RunFolder::run_in_it(For use) const {
  std::error_code error;
  const std::vector<CheckpointPath> checkpoints = list_checkpoints(path_);
  const bool goes_on = !checkpoints.empty() || fs::exists(file("metrics.jsonl"), error);
  for (const std::string& name : names()) {
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
  fs::path missing = fs::path(path).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();  // "runs/a/"
  for (; !missing.empty() && !fs::exists(missing, error); missing = missing.parent_path())
    created_.insert(created_.begin(), missing.string());
  fs::create_directories(path, error);
  require_input(!error, "--out ", path, " cannot be created: ", std::strerror(error.value()));
  try {
    PendingFile{file(".zerolab")};  // the folder can be written to; nothing stays
  } catch (const OutputError&) {
    throw InputError(str("--out ", path, " cannot be written to: ", std::strerror(errno)));
  }
}

RunFolder::~RunFolder() {
  while (!created_.empty() && rmdir(created_.back().c_str()) == 0) created_.pop_back();
}

std::string RunFolder::file(const std::string& name) const {
  return (fs::path(path_) / name).string();
}

const std::vector<std::string>& RunFolder::names() {
  static const std::vector<std::string> all = {"metrics.jsonl", "model.safetensors", "compare.json",
                                               "report.json", "report.html"};
  return all;
}

void require_apart(const std::string& what, const std::string& path, const std::string& out) {
  if (path.empty() || out.empty()) return;
  const fs::path inside = resolved_path(path).lexically_relative(resolved_path(out));
  const std::string name = inside.empty() ? "" : inside.begin()->string();
  const bool taken = std::ranges::count(RunFolder::names(), name) > 0 || name == "latest" ||
                     name.starts_with("step-");
  require_input(!taken, what, ": '", path, "' is, or is inside, a file or folder of --out ", out,
                "; give another name");
}

std::string metrics_line(const StepRecord& record) {
  nlohmann::ordered_json line{{"step", record.step},           {"loss", record.loss},
                              {"grad_norm", record.grad_norm}, {"lr", record.lr},
                              {"tokens", record.tokens},       {"seconds", record.seconds}};
  if (record.eval_loss) line["eval_loss"] = *record.eval_loss;
  if (record.skipped) line["skipped"] = true;
  if (record.loss_scale) line["loss_scale"] = *record.loss_scale;
  return line.dump();
}

Metrics::Metrics(std::string path, bool continued) : path_(std::move(path)) {
  file_ =
      open(path_.c_str(), O_WRONLY | O_CREAT | (continued ? O_NONBLOCK : O_EXCL) | O_CLOEXEC, 0666);
  require_input(file_ >= 0, path_, " cannot be created: ", std::strerror(errno));
  try {
    lock();
  } catch (...) {
    close(file_);
    throw;
  }
  bytes_ = lseek(file_, 0, SEEK_END);
}

void Metrics::lock() const {
  struct stat status;
  require_input(fstat(file_, &status) == 0 && S_ISREG(status.st_mode), path_,
                " is not a regular file; remove it, or choose another --out");
  require_input(lock_against_other_processes(file_), path_,
                ": another process writes into this folder; wait for its end, or choose another "
                "--out");
}

Metrics::~Metrics() {
  close(file_);
  if (bytes_ == 0) unlink(path_.c_str());
}

MetricsLines metrics_until(const std::string& path, int64_t step) {
  std::ifstream file(path, std::ios::binary);
  MetricsLines lines;
  for (std::string line; std::getline(file, line) && !file.eof();) {  // at the end: a cut-off line
    if (!is_json(line)) break;
    const auto json = nlohmann::json::parse(line);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) break;
    const int64_t of_line = json["step"];
    if (of_line > step || of_line <= lines.last) break;
    lines.last = of_line;
    lines.bytes += int64_t(line.size()) + 1;
  }
  return lines;
}

int64_t Metrics::keep_until(int64_t step) {
  const MetricsLines lines = metrics_until(path_, step);
  bytes_ = lines.bytes;
  if (ftruncate(file_, bytes_) != 0 || lseek(file_, bytes_, SEEK_SET) < 0)
    throw OutputError(
        str(path_, " cannot be shortened to step ", step, ": ", std::strerror(errno)));
  return lines.last;
}

void Metrics::sync() {
  if (!problem_.empty() || fsync(file_) == 0) return;
  problem_ = str(path_, " cannot be written: ", std::strerror(errno));
}

void Metrics::append(const StepRecord& record) {
  if (!problem_.empty()) return;
  const std::string line = metrics_line(record) + "\n";
  for (size_t written = 0; written < line.size();) {
    const ssize_t n = write(file_, line.data() + written, line.size() - written);
    if (n > 0) written += size_t(n);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    problem_ =
        str(path_, " cannot be written after step ", record.step - 1, ": ", std::strerror(errno));
    (void)!ftruncate(file_, bytes_);
    return;
  }
  bytes_ += int64_t(line.size());
}

}  // namespace zl::cli
