#include "tensor/io/file_calls.h"

#include <signal.h>
#include <sys/file.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "tensor/error.h"
#include "tensor/random.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

// How names of temporary files begin. The same for processes that see each other: of one boot, and
// not in different containers.
std::string prefix() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  return str(".zerolab-", fnv1a(boot + fs::read_symlink("/proc/self/ns/pid", error).string()), '-');
}

// Removes what processes left that have ended, for example by SIGKILL.
void remove_abandoned_files(const std::string& folder, FileCalls& calls) {
  const std::string seen = prefix();
  std::error_code error;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    int process = 0;
    unsigned long long number = 0;
    if (name.starts_with(seen) &&
        std::sscanf(name.c_str() + seen.size(), "%d-%llu", &process, &number) == 2 &&
        ::kill(process, 0) != 0 && errno == ESRCH)
      calls.remove(at->path().string());
  }
}

}  // namespace

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
  for (int i = 0; ::flock(file, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK) return true;
    if (i == 20) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

void sync_folder(FileCalls& calls, const std::string& folder) {
  WrittenFile file(calls, folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  file.sync();
  file.close();
}

// ---- PendingFile -------------------------------------------------------------------------------

std::string temporary_beside(const std::string& path) {
  static std::atomic<int> number{0};  // several ranks may write at the same time
  const std::string begin = (fs::path(path).parent_path() / prefix()).string();
  std::string name;
  std::error_code error;
  for (int i = 0; i == 0 || (i < 1000 && fs::exists(fs::symlink_status(name, error))); ++i)
    name = str(begin, ::getpid(), '-', number++);
  return name;
}

PendingFile::PendingFile(const std::string& path, FileCalls& calls)
    : calls_(calls),
      path_(path),
      temporary_(temporary_beside(path)),
      file_(calls, temporary_, O_WRONLY | O_CREAT | O_EXCL, path,
            "; an existing file of this name is unchanged") {
  remove_abandoned_files(fs::path(path).parent_path().string(), calls);
}

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
