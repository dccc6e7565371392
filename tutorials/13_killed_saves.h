// Processes that are killed at one call on files while they save a checkpoint: lesson 13.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>

#include "stages/train/trainer.h"
#include "tensor/error.h"

namespace zl::lesson {

// A folder in the system's folder for temporary files. It is removed with this object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "zerolab-13-XXXXXX").string();
    require_input(mkdtemp(path.data()) != nullptr, path, ": cannot be created; set TMPDIR");
    path_ = path;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Counts the calls that change files. Instead of call `kill_at` the process dies by SIGKILL; 0:
// never. Nothing is synced: a killed process loses no page that the system has, only a power cut
// does.
class CountedFiles final : public FileCalls {
 public:
  explicit CountedFiles(int64_t kill_at = 0) : kill_at_(kill_at) {}
  int64_t calls() const { return calls_; }
  int64_t first_rename() const { return first_rename_; }  // its number

  int open(const std::string& path, int flags) override {
    return next(), FileCalls::open(path, flags);
  }
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) override {
    return next(), FileCalls::pwrite(file, data, bytes, at);
  }
  int fsync(int) override { return next(), 0; }
  int close(int file) override { return next(), FileCalls::close(file); }
  int rename(const std::string& from, const std::string& to) override {
    next();
    if (first_rename_ == 0) first_rename_ = calls_.load();
    return FileCalls::rename(from, to);
  }
  int mkdir(const std::string& path) override { return next(), FileCalls::mkdir(path); }
  int remove(const std::string& path) override { return next(), FileCalls::remove(path); }

 private:
  void next() {
    if (++calls_ == kill_at_) kill(getpid(), SIGKILL);
  }

  const int64_t kill_at_;
  std::atomic<int64_t> calls_ = 0, first_rename_ = 0;
};

// Trains in a process that dies at call `kill_at` of its files. Returns whether it did.
inline bool is_killed(TrainingSpec spec, int64_t kill_at) {
  const pid_t child = fork();
  require_input(child >= 0, "the system gives no further process");
  if (child == 0) {
    CountedFiles files(kill_at);
    spec.checkpoint.files = &files;
    spec.run_ranks = {};  // --step is the parent's
    try {
      run_training(spec);
    } catch (const std::exception&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

}  // namespace zl::lesson
