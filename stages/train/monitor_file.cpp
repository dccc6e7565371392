#include "stages/train/monitor_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tensor/error.h"

namespace zl {

namespace fs = std::filesystem;

std::string monitor_folder(const Monitor& monitor, const char* key) {
  const fs::path folder = fs::path(monitor.output_path) / monitor.job_name;
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  require_input(!error, key, ": the folder ", folder.string(),
                " cannot be created: ", error.message());
  return folder.string();
}

MonitorFile::MonitorFile(const char* key, std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a pipe without a reader is refused, not waited for.
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  require_input(file_ >= 0, key, ": ", path_, " cannot be written to: ", std::strerror(errno));
}

MonitorFile::MonitorFile(MonitorFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

MonitorFile::~MonitorFile() {
  if (file_ >= 0) close(file_);
}

void MonitorFile::append(const std::string& bytes, int64_t samples) {
  const off_t before = lseek(file_, 0, SEEK_END);
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t n = write(file_, bytes.data() + written, bytes.size() - written);
    if (n > 0) written += size_t(n);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    const int reason = errno;
    if (before >= 0) (void)!ftruncate(file_, before);
    throw OutputError(
        str(path_, " cannot be written after ", samples, " samples: ", std::strerror(reason)));
  }
}

}  // namespace zl
