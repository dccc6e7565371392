// File calls of which one fails.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string>

#include "tensor/io/file_calls.h"

namespace zl::test {

enum class FileFault {
  none,
  process_exit,
  io_error,
  no_space,
  interrupted,
  end_of_file,
  short_transfer,  // half of the bytes
};

// The fault happens at the k-th call, counting from 1, of one function, or of any function; of any
// thread. No call really syncs.
class FaultyFiles : public FileCalls {
 public:
  FaultyFiles() = default;
  FaultyFiles(FileFault fault, int64_t at, std::string function = "")
      : function(std::move(function)), fault(fault), at(at) {}

  std::string function;  // "pread"; "": any
  FileFault fault = FileFault::none;
  int64_t at = 1;

  int64_t calls(const std::string& of = "") {  // "": of all functions
    const std::lock_guard lock(mutex_);
    return calls_[of];
  }
  const std::string& hit() const { return hit_; }  // the function with the fault; "": none yet

  int open(const std::string& path, int flags) override {
    return fails("open") ? -1 : FileCalls::open(path, flags);
  }
  ssize_t pread(int file, void* data, size_t bytes, off_t from) override {
    return transfer("pread", bytes,
                    [&](size_t n) { return FileCalls::pread(file, data, n, from); });
  }
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t to) override {
    return transfer("pwrite", bytes,
                    [&](size_t n) { return FileCalls::pwrite(file, data, n, to); });
  }
  int posix_fallocate(int file, off_t from, off_t bytes) override {
    return fails("posix_fallocate") ? errno : FileCalls::posix_fallocate(file, from, bytes);
  }
  int leave_cache(int file, off_t from, off_t bytes) override {
    return fails("leave_cache") ? -1 : FileCalls::leave_cache(file, from, bytes);
  }
  int fsync(int) override { return fails("fsync") ? -1 : 0; }
  int close(int file) override {  // it is closed all the same
    const bool failed = fails("close");
    const int error = errno, result = FileCalls::close(file);
    if (failed) errno = error;
    return failed ? -1 : result;
  }
  int rename(const std::string& from, const std::string& to) override {
    return fails("rename") ? -1 : FileCalls::rename(from, to);
  }
  int mkdir(const std::string& path) override {
    return fails("mkdir") ? -1 : FileCalls::mkdir(path);
  }
  int remove(const std::string& path) override {
    return fails("remove") ? -1 : FileCalls::remove(path);
  }

 private:
  bool is_hit(const char* called) {  // then errno is set
    const std::lock_guard lock(mutex_);
    const int64_t of_all = ++calls_[""], of_one = ++calls_[called];
    if (fault == FileFault::none || (function.empty() ? of_all : of_one) != at) return false;
    if (!function.empty() && function != called) return false;
    hit_ = called;
    if (fault == FileFault::process_exit) ::_exit(137);
    errno = fault == FileFault::no_space ? ENOSPC : fault == FileFault::interrupted ? EINTR : EIO;
    return true;
  }
  // Only a transfer can be short.
  bool fails(const char* called) { return is_hit(called) && fault != FileFault::short_transfer; }

  template <class Move>
  ssize_t transfer(const char* called, size_t bytes, const Move& move) {
    if (!is_hit(called)) return move(bytes);
    if (fault == FileFault::short_transfer) return move(bytes / 2);
    return fault == FileFault::end_of_file ? 0 : -1;
  }

  std::mutex mutex_;
  std::map<std::string, int64_t> calls_;
  std::string hit_;
};

}  // namespace zl::test
