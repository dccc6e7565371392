#include "tensor/io/pending_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tensor/error.h"

namespace zl {

PendingFile::PendingFile(const std::string& path) : path_(path) {
  // Numbered, because several ranks or programs may write at the same time; a file that a crash
  // left behind is skipped.
  static std::atomic<int> number{0};
  do {
    temporary_ = str(path, ".", ::getpid(), ".", number++, ".tmp");
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EEXIST);
  if (file_ < 0) fail();
}

PendingFile::~PendingFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void PendingFile::write(const void* data, size_t bytes) {
  for (auto* p = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t written = ::write(file_, p, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    p += written;
    bytes -= size_t(written);
    written_ += written;
  }
}

void PendingFile::commit() {
  // The data before the name: after a power cut, `path` must not be an empty file.
  if (::fsync(file_) != 0) fail();
  if (::close(std::exchange(file_, -1)) != 0) fail();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  temporary_.clear();
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int directory =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);  // some file systems cannot; the file itself is safe
  ::close(directory);
}

void PendingFile::fail() const {
  throw OutputError(str(path_, ": cannot be written: ", std::strerror(errno), " (after ", written_,
                        " bytes); an existing file of this name is unchanged"));
}

}  // namespace zl
