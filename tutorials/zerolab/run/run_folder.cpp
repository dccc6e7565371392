#include "tutorials/zerolab/run/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/io/pending_file.h"

namespace zl::cli {
namespace fs = std::filesystem;

RunFolder::RunFolder(const std::string& path) : path_(path) {
  std::error_code error;
  require_input(!fs::exists(path, error) || fs::is_directory(path, error), "--out ", path,
                " is a file; name a folder");
  for (const std::string& name : names())
    require_input(!fs::exists(fs::symlink_status(file(name), error)), "--out ", path,
                  " already holds a run (", name, "); choose another folder, or remove that one");
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
                                               "report.html"};
  return all;
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

Metrics::Metrics(std::string path) : path_(std::move(path)) {
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  require_input(file_ >= 0, path_, " cannot be created: ", std::strerror(errno));
}

Metrics::~Metrics() {
  close(file_);
  if (bytes_ == 0) unlink(path_.c_str());
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
