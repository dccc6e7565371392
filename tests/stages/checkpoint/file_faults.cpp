#include "tests/stages/checkpoint/file_faults.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <utility>

#include "tensor/error.h"

namespace zl::test {
namespace fs = std::filesystem;

const char* name(Fault fault) {
  constexpr const char* names[] = {"none",     "process_exit", "io_error",
                                   "no_space", "short_write",  "interrupted"};
  return names[size_t(fault)];
}

// ---- Faults
// ---------------------------------------------------------------------------------------

bool FaultyFiles::fails(const char* function) {
  if (++calls_ != at_ || fault_ == Fault::none) return false;
  hit_ = function;
  is_short_ = fault_ == Fault::short_write;
  if (fault_ == Fault::process_exit) ::_exit(137);
  errno = fault_ == Fault::io_error ? EIO : fault_ == Fault::no_space ? ENOSPC : EINTR;
  return fault_ != Fault::short_write;
}

int FaultyFiles::open(const std::string& path, int flags) {
  return fails("open") ? -1 : FileCalls::open(path, flags);
}
ssize_t FaultyFiles::pwrite(int file, const void* data, size_t bytes, off_t at) {
  if (fails("pwrite")) return -1;
  return FileCalls::pwrite(file, data, std::exchange(is_short_, false) ? bytes / 2 : bytes, at);
}
int FaultyFiles::posix_fallocate(int file, off_t at, off_t bytes) {
  return fails("posix_fallocate") ? errno : FileCalls::posix_fallocate(file, at, bytes);
}
int FaultyFiles::fsync(int) { return fails("fsync") ? -1 : 0; }
int FaultyFiles::close(int file) {
  const bool failed = fails("close");
  const int error = errno;
  const int result = FileCalls::close(file);
  if (failed) errno = error;
  return failed ? -1 : result;
}
int FaultyFiles::rename(const std::string& from, const std::string& to) {
  return fails("rename") ? -1 : FileCalls::rename(from, to);
}
int FaultyFiles::unlink(const std::string& path) {
  return fails("unlink") ? -1 : FileCalls::unlink(path);
}
int FaultyFiles::mkdir(const std::string& path) {
  return fails("mkdir") ? -1 : FileCalls::mkdir(path);
}
int FaultyFiles::rmdir(const std::string& path) {
  return fails("rmdir") ? -1 : FileCalls::rmdir(path);
}

// ---- Loss of power
// --------------------------------------------------------------------------------

struct RecordedFiles::Model {
  enum class Kind { link, unlink, write, reserve, sync, other };
  struct Op {
    Kind kind = Kind::other;
    int inode = -1;          // of the file, or of the folder whose names change
    std::string name, from;  // from: the old name, if it is a rename within the folder
    int target = -1;         // what `name` then is
    int64_t at = 0;          // [B]
    std::string data;
  };
  struct Inode {
    bool folder = false;
    std::map<std::string, int> names;  // of a folder, now
    std::map<std::string, int> first;  // of a folder, when recording began
    std::string content;               // of a file, when recording began
  };

  std::string root;
  std::vector<Inode> inodes;
  std::vector<Op> ops;
  std::map<int, int> open_files;  // inode by descriptor

  int add(const fs::path& path) {
    const int number = int(inodes.size());
    inodes.push_back({.folder = fs::is_directory(path)});
    if (!inodes[size_t(number)].folder) {
      std::ifstream file(path, std::ios::binary);
      inodes[size_t(number)].content.assign(std::istreambuf_iterator<char>(file), {});
      return number;
    }
    for (const auto& entry : fs::directory_iterator(path)) {
      const int inner = add(entry.path());
      inodes[size_t(number)].names[entry.path().filename().string()] = inner;
    }
    inodes[size_t(number)].first = inodes[size_t(number)].names;
    return number;
  }

  int inode_of(const fs::path& path) const {
    int at = 0;
    const fs::path inside = path.lexically_relative(root);
    for (const fs::path& part : inside) {
      if (part == ".") continue;
      at = inodes[size_t(at)].names.at(part.string());
    }
    return at;
  }
  int folder_of(const fs::path& path) const { return inode_of(path.parent_path()); }
  void link(const fs::path& path, int inode) {
    const int folder = folder_of(path);
    inodes[size_t(folder)].names[path.filename().string()] = inode;
    ops.push_back({Kind::link, folder, path.filename().string(), "", inode});
  }
  void drop(const fs::path& path) {
    const int folder = folder_of(path);
    inodes[size_t(folder)].names.erase(path.filename().string());
    ops.push_back({Kind::unlink, folder, path.filename().string()});
  }
  int new_inode(bool folder) {
    inodes.push_back({.folder = folder});
    return int(inodes.size()) - 1;
  }
};

RecordedFiles::RecordedFiles(const std::string& root) : model_(std::make_unique<Model>()) {
  model_->root = root;
  model_->add(root);
}
RecordedFiles::~RecordedFiles() = default;

int RecordedFiles::open(const std::string& path, int flags) {
  const std::lock_guard lock(mutex_);
  if (!path.starts_with(model_->root)) return FileCalls::open(path, flags);  // the folder around it
  const bool existed = fs::exists(path);
  const int file = FileCalls::open(path, flags);
  if (file < 0) return file;
  const int inode = existed ? model_->inode_of(path) : model_->new_inode(false);
  if (!existed) model_->link(path, inode);
  model_->open_files[file] = inode;
  return file;
}
ssize_t RecordedFiles::pwrite(int file, const void* data, size_t bytes, off_t at) {
  const std::lock_guard lock(mutex_);
  const int inode = model_->open_files.at(file);
  model_->ops.push_back({Model::Kind::write, inode, "", "", -1, at,
                         std::string(static_cast<const char*>(data), bytes)});
  return FileCalls::pwrite(file, data, bytes, at);
}
int RecordedFiles::posix_fallocate(int file, off_t at, off_t bytes) {
  const std::lock_guard lock(mutex_);
  model_->ops.push_back(
      {Model::Kind::reserve, model_->open_files.at(file), "", "", -1, at + bytes});
  return FileCalls::posix_fallocate(file, at, bytes);
}
int RecordedFiles::close(int file) {
  const std::lock_guard lock(mutex_);
  model_->open_files.erase(file);
  return FileCalls::close(file);
}
int RecordedFiles::fsync(int file) {
  const std::lock_guard lock(mutex_);
  const auto known = model_->open_files.find(file);
  if (known != model_->open_files.end()) model_->ops.push_back({Model::Kind::sync, known->second});
  return 0;
}
int RecordedFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const int folder = model_->folder_of(from), inode = model_->inode_of(from);
  require(folder == model_->folder_of(to), "the model renames inside one folder only");
  const std::string old = fs::path(from).filename().string(),
                    now = fs::path(to).filename().string();
  auto& names = model_->inodes[size_t(folder)].names;
  names.erase(old);
  names[now] = inode;
  model_->ops.push_back({Model::Kind::link, folder, now, old, inode});
  return FileCalls::rename(from, to);
}
int RecordedFiles::unlink(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (fs::exists(path)) model_->drop(path);
  return FileCalls::unlink(path);
}
int RecordedFiles::mkdir(const std::string& path) {
  const std::lock_guard lock(mutex_);
  model_->link(path, model_->new_inode(true));
  return FileCalls::mkdir(path);
}
int RecordedFiles::rmdir(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (fs::exists(path)) model_->drop(path);
  return FileCalls::rmdir(path);
}

int64_t RecordedFiles::calls() const { return int64_t(model_->ops.size()); }

int64_t RecordedFiles::calls_until_durable(const std::string& from) const {
  const auto& ops = model_->ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].from.find(from) == std::string::npos) continue;
    for (size_t s = i + 1; s < ops.size(); ++s)
      if (ops[s].kind == Model::Kind::sync && ops[s].inode == ops[i].inode) return int64_t(s) + 1;
  }
  throw std::logic_error("the rename of " + from + " never became durable");
}

void RecordedFiles::after_power_loss(int64_t calls, uint64_t seed, const std::string& into,
                                     bool syncs) const {
  using Kind = Model::Kind;
  constexpr size_t kBlock = 64;  // [B]
  std::mt19937_64 random(seed);
  const auto& ops = model_->ops;
  std::vector<int64_t> synced(model_->inodes.size(), 0);  // ops before this one are durable
  for (int64_t i = 0; i < calls && syncs; ++i)
    if (ops[size_t(i)].kind == Kind::sync) synced[size_t(ops[size_t(i)].inode)] = i;

  std::vector<std::map<std::string, int>> names;
  std::vector<std::string> contents;
  for (size_t inode = 0; inode < model_->inodes.size(); ++inode) {
    names.push_back(model_->inodes[inode].first);
    contents.push_back(model_->inodes[inode].content);
    bool lost = false;  // a folder loses all changes after the first that it loses
    for (int64_t i = 0; i < calls; ++i) {
      const Model::Op& op = ops[size_t(i)];
      if (size_t(op.inode) != inode || op.kind == Kind::sync) continue;
      const bool durable = i < synced[inode];
      std::string& content = contents.back();
      if (op.kind == Kind::write) {
        for (size_t at = 0; at < op.data.size(); at += kBlock) {
          if (!durable && random() % 2) continue;
          const std::string part = op.data.substr(at, kBlock);
          content.resize(std::max(content.size(), size_t(op.at) + at + part.size()));
          content.replace(size_t(op.at) + at, part.size(), part);
        }
      } else if (op.kind == Kind::reserve) {
        if (durable || random() % 2) content.resize(std::max(content.size(), size_t(op.at)));
      } else if (durable || !(lost = lost || random() % 4 == 0)) {
        if (!op.from.empty()) names.back().erase(op.from);
        if (op.kind == Kind::link) names.back()[op.name] = op.target;
        if (op.kind == Kind::unlink) names.back().erase(op.name);
      }
    }
  }
  const std::function<void(int, const fs::path&)> make = [&](int inode, const fs::path& path) {
    if (!model_->inodes[size_t(inode)].folder) {
      std::ofstream(path, std::ios::binary) << contents[size_t(inode)];
      return;
    }
    fs::create_directories(path);
    for (const auto& [name, inner] : names[size_t(inode)]) make(inner, path / name);
  };
  fs::remove_all(into);
  make(0, into);
}

}  // namespace zl::test
