#include "tensor/io/file_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tensor/error.h"

namespace zl {

int FileCalls::open(const std::string& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC, 0666);
}
ssize_t FileCalls::pwrite(int file, const void* data, size_t bytes, off_t at) {
  return ::pwrite(file, data, bytes, at);
}
ssize_t FileCalls::pread(int file, void* data, size_t bytes, off_t at) {
  return ::pread(file, data, bytes, at);
}
int FileCalls::posix_fallocate(int file, off_t at, off_t bytes) {
  return ::posix_fallocate(file, at, bytes);
}
bool FileCalls::set_direct(int file, bool direct) {
  return ::fcntl(file, F_SETFL, direct ? O_DIRECT : 0) == 0;
}
int FileCalls::fsync(int file) { return ::fsync(file); }
int FileCalls::close(int file) { return ::close(file); }
int FileCalls::rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str());
}
int FileCalls::unlink(const std::string& path) { return ::unlink(path.c_str()); }
int FileCalls::mkdir(const std::string& path) { return ::mkdir(path.c_str(), 0777); }
int FileCalls::rmdir(const std::string& path) { return ::rmdir(path.c_str()); }

FileCalls& system_file_calls() {
  static FileCalls calls;
  return calls;
}

WrittenFile::WrittenFile(FileCalls& calls, std::string path, int flags)
    : calls_(&calls), path_(std::move(path)) {
  do file_ = calls_->open(path_, flags);
  while (file_ < 0 && errno == EINTR);
  if (file_ < 0) fail("cannot be opened");
}

WrittenFile::WrittenFile(WrittenFile&& other) noexcept
    : calls_(other.calls_),
      path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      written_(other.written_) {}

WrittenFile::~WrittenFile() {
  if (file_ >= 0) calls_->close(file_);
}

void WrittenFile::reserve(int64_t bytes) {
  if (bytes == 0) return;
  int error = 0;
  do error = calls_->posix_fallocate(file_, 0, bytes);
  while (error == EINTR);
  if (error == 0) return;
  errno = error;
  fail(str("cannot get ", bytes, " bytes of disk space").c_str());
}

void WrittenFile::write(std::span<const std::byte> bytes, int64_t at) {
  while (!bytes.empty()) {
    const ssize_t n = calls_->pwrite(file_, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;  // no progress, and no reason given
    if (n <= 0) fail("cannot be written");
    bytes = bytes.subspan(size_t(n));
    at += n;
    written_ += n;
  }
}

void WrittenFile::sync() {
  if (calls_->fsync(file_) != 0) fail("cannot be made durable (fsync)");
}

// On Linux the descriptor is closed also when close() was interrupted.
void WrittenFile::close() {
  const int file = std::exchange(file_, -1);
  if (calls_->close(file) != 0 && errno != EINTR) fail("cannot be closed");
}

void WrittenFile::fail(const char* what) const {
  const int error = errno;
  throw OutputError(str(path_, ": ", what, ": ", std::strerror(error),
                        written_ > 0 ? str(" (after ", written_, " bytes)") : ""));
}

void sync_folder(FileCalls& calls, const std::string& folder) {
  WrittenFile file(calls, folder, O_RDONLY | O_DIRECTORY);
  file.sync();
  file.close();
}

}  // namespace zl
