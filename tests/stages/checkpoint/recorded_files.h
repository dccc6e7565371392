// File calls that are recorded so that a loss of power can be replayed.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/io/file_calls.h"

namespace zl::test {

// Records the calls below one folder, which must exist. In this model of a disk, what was not
// synced may be lost in any part: of a file each block of 64 bytes and the size, of a folder's
// changes all but the first few. That is at least what ext4, XFS and btrfs promise.
class RecordedFiles final : public FileCalls {
 public:
  explicit RecordedFiles(const std::string& root) : root_(root) { add(root); }

  int open(const std::string& path, int flags) override;
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) override;
  int fsync(int file) override;
  int close(int file) override;
  int rename(const std::string& from, const std::string& to) override;
  int mkdir(const std::string& path) override;
  int remove(const std::string& path) override;

  int64_t calls() const { return int64_t(ops_.size()); }
  // The number of calls until the rename of `from` (a part of the path) was durable.
  int64_t calls_until_durable(const std::string& from) const;
  // The folder as it may be found when the power goes after the first `calls` calls. Each seed
  // loses other parts. Without `syncs`, no sync counts.
  void after_power_loss(int64_t calls, uint64_t seed, const std::string& into,
                        bool syncs = true) const;

 private:
  using Path = std::filesystem::path;
  enum class Kind { link, unlink, write, sync };
  struct Op {
    Kind kind;
    size_t inode;            // of the file, or of the folder whose names change
    std::string name, from;  // from: the old name, if it is a rename within the folder
    size_t target = 0;       // what `name` then is
    int64_t at = 0;          // [B]
    std::string data;
  };
  struct Inode {
    bool folder = false;
    std::map<std::string, size_t> names;  // of a folder, now
    std::map<std::string, size_t> first;  // of a folder, when recording began
    std::string content;                  // of a file, when recording began
  };

  size_t add(const Path& path);
  size_t new_inode(bool folder) {
    return inodes_.push_back({.folder = folder}), inodes_.size() - 1;
  }
  size_t inode_of(const Path& path) const;
  void link(const Path& path, size_t inode);
  void drop(const std::string& path);  // if it is there

  std::mutex mutex_;
  const std::string root_;
  std::vector<Inode> inodes_;
  std::vector<Op> ops_;
  std::map<int, size_t> open_files_;  // inode by descriptor
};

}  // namespace zl::test
