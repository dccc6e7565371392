// The system calls that change files, and a file that is written through them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace zl {

// Each function is the POSIX function of its name, with its results and errno. Tests replace them
// by calls that fail, write less, or stop the process. Thread-safe.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual int open(const std::string& path, int flags);
  virtual ssize_t pwrite(int file, const void* data, size_t bytes, off_t at);
  virtual ssize_t pread(int file, void* data, size_t bytes, off_t at);
  virtual int posix_fallocate(int file, off_t at, off_t bytes);  // returns the error
  // Transfers past the page cache, or not. False: the file system has no O_DIRECT.
  virtual bool set_direct(int file, bool direct);
  virtual int fsync(int file);
  virtual int close(int file);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int mkdir(const std::string& path);
  virtual int rmdir(const std::string& path);
};
FileCalls& system_file_calls();

// An open file. Every failure throws OutputError with the path, the reason and the bytes written.
// Writing goes on after an interrupted or a short write. A failed fsync is never tried again:
// Linux forgets the failure and drops the data (Rebello et al. 2020, "Can Applications Recover from
// fsync Failures?", USENIX ATC).
class WrittenFile {
 public:
  WrittenFile(FileCalls& calls, std::string path, int flags);
  WrittenFile(WrittenFile&& other) noexcept;
  WrittenFile& operator=(WrittenFile&&) = delete;
  ~WrittenFile();

  // Takes `bytes` of disk space from the start of the file on, so that a full disk shows now.
  void reserve(int64_t bytes);
  void write(std::span<const std::byte> bytes, int64_t at);
  void sync();
  void close();

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* what) const;

  FileCalls* calls_;
  std::string path_;
  int file_ = -1;
  int64_t written_ = 0;  // [B]
};

// Makes the names in a folder durable. Throws OutputError.
void sync_folder(FileCalls& calls, const std::string& folder);

}  // namespace zl
