#include "tensor/io/pending_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tensor/error.h"

namespace zl {

PendingFile::PendingFile(const std::string& path, FileCalls& calls) : calls_(calls), path_(path) {
  // Numbered, because several ranks or programs may write at the same time; a file that a crash
  // left behind is skipped.
  static std::atomic<int> number{0};
  do {
    temporary_ = str(path, ".", ::getpid(), ".", number++, ".tmp");
    file_ = calls_.open(temporary_, O_WRONLY | O_CREAT | O_EXCL);
  } while (file_ < 0 && (errno == EEXIST || errno == EINTR));
  if (file_ < 0) fail();
}

PendingFile::~PendingFile() {
  if (file_ >= 0) calls_.close(file_);
  if (!temporary_.empty()) calls_.unlink(temporary_);
}

void PendingFile::write(const void* data, size_t bytes) {
  for (auto* p = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t written = calls_.pwrite(file_, p, bytes, written_);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;  // no progress, and no reason given
    if (written <= 0) fail();
    p += written;
    bytes -= size_t(written);
    written_ += written;
  }
}

void PendingFile::commit() {
  // The data before the name: after a power cut, `path` must not be an empty file.
  if (calls_.fsync(file_) != 0) fail();
  if (calls_.close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail();
  if (calls_.rename(temporary_, path_) != 0) fail();
  temporary_.clear();
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int directory = calls_.open(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  if (directory < 0) return;
  calls_.fsync(directory);  // some file systems cannot; the file itself is safe
  calls_.close(directory);
}

void PendingFile::fail() const {
  throw OutputError(str(path_, ": cannot be written: ", std::strerror(errno), " (after ", written_,
                        " bytes); an existing file of this name is unchanged"));
}

}  // namespace zl
