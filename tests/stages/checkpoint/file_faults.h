// File calls that fail or end the process at one call, and calls that are recorded so that a loss
// of power can be replayed.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/io/file_calls.h"

namespace zl::test {

enum class Fault { none, process_exit, io_error, no_space, short_write, interrupted };
const char* name(Fault fault);

// The fault happens at call `at`, counting from 1, of any thread. No call really syncs.
class FaultyFiles final : public FileCalls {
 public:
  FaultyFiles(Fault fault, int64_t at) : fault_(fault), at_(at) {}
  int64_t calls() const { return calls_; }
  const std::string& hit() const { return hit_; }  // the function with the fault; "": none yet

  int open(const std::string& path, int flags) override;
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) override;
  int posix_fallocate(int file, off_t at, off_t bytes) override;
  int fsync(int file) override;
  int close(int file) override;
  int rename(const std::string& from, const std::string& to) override;
  int unlink(const std::string& path) override;
  int mkdir(const std::string& path) override;
  int rmdir(const std::string& path) override;

 private:
  bool fails(const char* function);  // then errno is set

  const Fault fault_;
  const int64_t at_;
  std::atomic<int64_t> calls_ = 0;
  std::string hit_;
  inline static thread_local bool is_short_ = false;  // the write that this thread makes now
};

// Records the calls below one folder, which must exist. In this model of a disk, what was not
// synced may be lost in any part: of a file each block of 64 bytes and the size, of a folder's
// changes all but the first few. That is at least what ext4, XFS and btrfs promise.
class RecordedFiles final : public FileCalls {
 public:
  explicit RecordedFiles(const std::string& root);
  ~RecordedFiles() override;

  int open(const std::string& path, int flags) override;
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) override;
  int posix_fallocate(int file, off_t at, off_t bytes) override;
  int fsync(int file) override;
  int close(int file) override;
  int rename(const std::string& from, const std::string& to) override;
  int unlink(const std::string& path) override;
  int mkdir(const std::string& path) override;
  int rmdir(const std::string& path) override;

  int64_t calls() const;
  // The number of calls until the rename of `from` (a part of the path) was durable.
  int64_t calls_until_durable(const std::string& from) const;
  // The folder as it may be found when the power goes after the first `calls` calls. Each seed
  // loses other parts. Without `syncs`, no sync counts.
  void after_power_loss(int64_t calls, uint64_t seed, const std::string& into,
                        bool syncs = true) const;

 private:
  struct Model;
  mutable std::mutex mutex_;
  std::unique_ptr<Model> model_;
};

}  // namespace zl::test
