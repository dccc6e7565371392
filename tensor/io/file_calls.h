// The system calls that change files, a file that is written through them, and one that gets its
// final name only when it is complete.
//
// What survives a loss of power: the bytes of a file after fsync of the file, its name after fsync
// of its folder. A rename replaces a name in one step, so the name is that of the old file or of
// the new one. A call may be interrupted (EINTR) or move fewer bytes than asked: it is repeated for
// what is left. Any other failure, such as a full disk (ENOSPC), is thrown with its path and
// reason; but PendingFile::commit() goes on where the folder cannot be synced, and what fails in a
// destructor is passed over.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace zl {

// Each function is the POSIX function of its name, with its results and errno. Tests replace them
// by calls that fail, write less, or stop the process. Thread-safe.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual int open(const std::string& path, int flags) {
    return ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  }
  virtual ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
    return ::pwrite(file, data, bytes, at);
  }
  virtual ssize_t pread(int file, void* data, size_t bytes, off_t at) {
    return ::pread(file, data, bytes, at);
  }
  virtual int posix_fallocate(int file, off_t at, off_t bytes) {  // returns the error
    return ::posix_fallocate(file, at, bytes);
  }
  // Waits until the bytes are on the device, and frees their pages in the page cache. Unlike fsync
  // it makes nothing durable. EINVAL, ENOSYS, EOPNOTSUPP and EPERM say that the system cannot do
  // this; any other error is the device's, such as EIO, ENOSPC, or EDQUOT of NFS.
  virtual int leave_cache(int file, off_t at, off_t bytes) {
    constexpr unsigned kWrite =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (::sync_file_range(file, at, bytes, kWrite) != 0) return -1;
    return ::posix_fadvise(file, at, bytes, POSIX_FADV_DONTNEED), 0;
  }
  virtual int fsync(int file) { return ::fsync(file); }
  virtual int close(int file) { return ::close(file); }
  virtual int rename(const std::string& from, const std::string& to) {
    return std::rename(from.c_str(), to.c_str());
  }
  virtual int mkdir(const std::string& path) { return ::mkdir(path.c_str(), 0777); }
  // A file, a link, or an empty folder.
  virtual int remove(const std::string& path) { return std::remove(path.c_str()); }
};
FileCalls& system_file_calls();

// Calls `move(done)` until all `bytes` are moved; an interrupted or a short call is continued.
// Returns how many were moved: fewer at an error, which errno says, or at the end of a file, where
// errno is 0.
template <class Move>
int64_t move_all(int64_t bytes, const Move& move) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t n = move(done);
    if (n == 0) errno = 0;
    if (n == 0 || (n < 0 && errno != EINTR)) break;
    if (n > 0) done += n;
  }
  return done;
}

// An open file. Every failure throws OutputError with the path, the reason and the bytes written.
// Writing goes on after an interrupted or a short write. A failed fsync is never tried again:
// Linux forgets the failure and drops the data (Rebello et al. 2020, "Can Applications Recover from
// fsync Failures?", USENIX ATC).
class WrittenFile {
 public:
  // `name`: what errors call the file, if not by its path. `note`: what they end with.
  WrittenFile(FileCalls& calls, const std::string& path, int flags, const std::string& name = "",
              const char* note = "");
  ~WrittenFile();
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;

  void write(std::span<const std::byte> bytes, int64_t at);
  void sync();
  void close();

  // Throws the error of errno.
  [[noreturn]] void fail(const char* what) const;
  int descriptor() const { return file_; }
  int64_t written() const { return written_; }  // [B]

 private:
  FileCalls& calls_;
  const std::string name_;
  const char* const note_;
  int file_ = -1;
  int64_t written_ = 0;  // [B]
};

// A name in the folder of `path` that no file has, and no other call in any process returns:
// ".zerolab-" and a random number. Open it with O_EXCL.
std::string temporary_beside(const std::string& path);
// Whether it has such a name: a killed process may have left it, or a process be writing it.
bool is_temporary(const std::string& path);

// Writes a temporary file in the folder of `path`; commit() renames it. So `path` is at every time
// the old file or the complete new one, also after Ctrl-C. Without commit() the destructor removes
// the temporary file; a process that is killed leaves it there. Throws OutputError if the file
// cannot be written.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path, FileCalls& calls = system_file_calls());
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  FileCalls& calls_;
  std::string path_, temporary_;
  WrittenFile file_;
};

// Takes flock(2) on the descriptor; it lasts until that is closed. False if another process has it.
// A process that was killed a moment ago may still have it, so it is tried for two seconds. True
// also where the file system has no locks.
bool lock_against_other_processes(int file);

// Makes the names in a folder durable. Throws OutputError.
void sync_folder(FileCalls& calls, const std::string& folder);

}  // namespace zl
