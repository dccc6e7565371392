#include "tutorials/zerolab/run/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace zl::cli {
namespace {

namespace fs = std::filesystem;

std::string reason(int code) { return std::strerror(code); }

void refuse_if_there(const std::string& path, const std::string& folder) {
  std::error_code ignored;
  require_input(!fs::exists(fs::symlink_status(path, ignored)), "--out ", folder,
                " already holds a run (", fs::path(path).filename().string(),
                "); choose another folder, or remove that one");
}

}  // namespace

std::string metrics_line(const StepRecord& record) {
  nlohmann::ordered_json line{{"step", record.step},           {"loss", record.loss},
                              {"grad_norm", record.grad_norm}, {"lr", record.lr},
                              {"tokens", record.tokens},       {"seconds", record.seconds}};
  if (record.eval_loss) line["eval_loss"] = *record.eval_loss;
  if (record.skipped) line["skipped"] = true;
  if (record.loss_scale) line["loss_scale"] = *record.loss_scale;
  return line.dump();
}

RunFolder::RunFolder(const std::string& path)
    : metrics_((fs::path(path) / "metrics.jsonl").string()),
      weights_((fs::path(path) / "model.safetensors").string()) {
  std::error_code error;
  require_input(!fs::exists(path, error) || fs::is_directory(path, error), "--out ", path,
                " is a file; name a folder");
  fs::create_directories(path, error);
  require_input(!error, "--out ", path, " cannot be created: ", reason(error.value()));
  refuse_if_there(metrics_, path);
  refuse_if_there(weights_, path);
  file_ = open(metrics_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  require_input(file_ >= 0, "--out ", path, " cannot be written to: ", reason(errno));
}

RunFolder::~RunFolder() {
  close(file_);
  if (bytes_ == 0) unlink(metrics_.c_str());
}

void RunFolder::append(const StepRecord& record) {
  const std::string line = metrics_line(record) + "\n";
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = write(file_, line.data() + written, line.size() - written);
    if (n > 0) written += size_t(n);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    const int code = errno;
    [[maybe_unused]] const int cut = ftruncate(file_, bytes_);
    throw InputError(
        str(metrics_, " cannot be written after step ", record.step - 1, ": ", reason(code)));
  }
  bytes_ += int64_t(line.size());
}

}  // namespace zl::cli
