#include "tensor/io/file_calls.h"

#include <sys/file.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "tensor/error.h"

namespace zl {
namespace fs = std::filesystem;

FileCalls& system_file_calls() {
  static FileCalls calls;
  return calls;
}

WrittenFile::WrittenFile(FileCalls& calls, const std::string& path, int flags,
                         const std::string& name, const char* note)
    : calls_(calls), name_(name.empty() ? path : name), note_(note) {
  do file_ = calls_.open(path, flags);
  while (file_ < 0 && errno == EINTR);
  if (file_ < 0) fail("cannot be written");
}

WrittenFile::~WrittenFile() {
  if (file_ >= 0) calls_.close(file_);
}

void WrittenFile::write(std::span<const std::byte> bytes, int64_t at) {
  const int64_t n = move_all(int64_t(bytes.size()), [&](int64_t done) {
    return calls_.pwrite(file_, bytes.data() + done, bytes.size() - size_t(done), at + done);
  });
  written_ += n;
  if (n == int64_t(bytes.size())) return;
  if (errno == 0) errno = EIO;  // no progress, and no reason given
  fail("cannot be written");
}

void WrittenFile::sync() {
  if (calls_.fsync(file_) != 0) fail("cannot be made durable (fsync)");
}

// On Linux the descriptor is closed also when close() was interrupted.
void WrittenFile::close() {
  const int file = std::exchange(file_, -1);
  if (calls_.close(file) != 0 && errno != EINTR) fail("cannot be closed");
}

void WrittenFile::fail(const char* what) const {
  const int error = errno;
  throw OutputError(str(name_, ": ", what, ": ", std::strerror(error),
                        written_ > 0 ? str(" (after ", written_, " bytes)") : "", note_));
}

bool lock_against_other_processes(int file) {
  for (int i = 0; i <= 20; ++i) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

void sync_folder(FileCalls& calls, const std::string& folder) {
  WrittenFile file(calls, folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  file.sync();
  file.close();
}

// ---- PendingFile -------------------------------------------------------------------------------

constexpr const char* kTemporary = ".zerolab-";

std::string temporary_beside(const std::string& path) {
  std::random_device random;
  return (fs::path(path).parent_path() / str(kTemporary, uint64_t(random()) << 32 | random()))
      .string();
}
bool is_temporary(const std::string& path) {
  return fs::path(path).filename().string().starts_with(kTemporary);
}

PendingFile::PendingFile(const std::string& path, FileCalls& calls)
    : calls_(calls),
      path_(path),
      temporary_(temporary_beside(path)),
      file_(calls, temporary_, O_WRONLY | O_CREAT | O_EXCL, path,
            "; an existing file of this name is unchanged") {}

PendingFile::~PendingFile() {
  if (!temporary_.empty()) calls_.remove(temporary_);
}

void PendingFile::write(const void* data, size_t bytes) {
  file_.write({static_cast<const std::byte*>(data), bytes}, file_.written());
}

void PendingFile::commit() {
  // The data before the name: after a power cut, `path` must not be an empty file.
  file_.sync();
  file_.close();
  if (calls_.rename(temporary_, path_) != 0) file_.fail("cannot be written");
  temporary_.clear();
  try {
    sync_folder(calls_, fs::path(path_).parent_path().string());
  } catch (const OutputError&) {  // some file systems cannot; the file itself is safe
  }
}

}  // namespace zl
