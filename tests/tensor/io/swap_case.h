// Folders, data and faults for tests of a swap file.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tensor/io/disk.h"
#include "tests/nn/scratch_folder.h"

namespace zl::test {

inline std::vector<std::byte> random_bytes(size_t n, unsigned seed = 7) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = std::byte(random());
  return bytes;
}

// A folder whose files are in memory, where there is one: a disk under load would make tests slow.
inline std::string fast_folder() {
  const std::string shared = "/dev/shm";
  return ::access(shared.c_str(), W_OK | X_OK) == 0
             ? shared
             : std::filesystem::temp_directory_path().string();
}

// A folder in it, removed at the end of the test.
class FastFolder : public ScratchFolder {
 public:
  FastFolder() : ScratchFolder(fast_folder()) {}
};

inline int64_t files_in(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}
inline int64_t open_files() { return files_in("/proc/self/fd"); }

// What the k-th call of one function does, counting from 1.
enum class SwapFault { none, short_transfer, interrupted, io_error, no_space, end_of_file };

// File calls of which one fails.
class SwapCalls : public FileCalls {
 public:
  std::string function;  // "pread": the one that fails
  SwapFault fault = SwapFault::none;
  int64_t at = 1;

  int64_t calls(const std::string& of) {
    const std::lock_guard lock(mutex_);
    return calls_[of];
  }

  int open(const std::string& path, int flags) override {
    return hits("open") ? -1 : FileCalls::open(path, flags);
  }
  ssize_t pread(int file, void* data, size_t bytes, off_t at_byte) override {
    return hits("pread") ? transfers(FileCalls::pread(file, data, part(bytes), at_byte))
                         : FileCalls::pread(file, data, bytes, at_byte);
  }
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t at_byte) override {
    return hits("pwrite") ? transfers(FileCalls::pwrite(file, data, part(bytes), at_byte))
                          : FileCalls::pwrite(file, data, bytes, at_byte);
  }
  int posix_fallocate(int file, off_t at_byte, off_t bytes) override {
    return hits("posix_fallocate") ? errno : FileCalls::posix_fallocate(file, at_byte, bytes);
  }
  int leave_cache(int file, off_t at_byte, off_t bytes) override {
    return hits("leave_cache") ? -1 : FileCalls::leave_cache(file, at_byte, bytes);
  }

 private:
  bool hits(const std::string& called) {
    const std::lock_guard lock(mutex_);
    if (++calls_[called] != at || called != function || fault == SwapFault::none) return false;
    errno = error();
    return true;
  }
  int error() const {
    return fault == SwapFault::interrupted ? EINTR : fault == SwapFault::no_space ? ENOSPC : EIO;
  }
  size_t part(size_t bytes) const {
    return fault == SwapFault::short_transfer ? (bytes / 2 + 511) / 512 * 512 : 0;
  }
  ssize_t transfers(ssize_t moved) const {
    if (fault == SwapFault::short_transfer) return moved;
    errno = error();
    return fault == SwapFault::end_of_file ? 0 : -1;
  }

  std::mutex mutex_;
  std::map<std::string, int64_t> calls_;
};

}  // namespace zl::test
