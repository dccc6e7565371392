#include "tests/stages/checkpoint/recorded_files.h"

#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "tensor/error.h"

namespace zl::test {
namespace fs = std::filesystem;

size_t RecordedFiles::add(const Path& path) {
  const size_t number = new_inode(fs::is_directory(path));
  if (!inodes_[number].folder) {
    std::ifstream file(path, std::ios::binary);
    inodes_[number].content.assign(std::istreambuf_iterator<char>(file), {});
    return number;
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    const size_t inner = add(entry.path());
    inodes_[number].names[entry.path().filename().string()] = inner;
  }
  inodes_[number].first = inodes_[number].names;
  return number;
}
size_t RecordedFiles::inode_of(const Path& path) const {
  size_t at = 0;
  const Path inside = path.lexically_relative(root_);
  for (const Path& part : inside)
    if (part != ".") at = inodes_[at].names.at(part.string());
  return at;
}
void RecordedFiles::link(const Path& path, size_t inode) {
  const size_t folder = inode_of(path.parent_path());
  inodes_[folder].names[path.filename().string()] = inode;
  ops_.push_back({Kind::link, folder, path.filename().string(), "", inode});
}
void RecordedFiles::drop(const std::string& path) {
  if (!fs::exists(path)) return;
  const size_t folder = inode_of(Path(path).parent_path());
  const std::string name = Path(path).filename().string();
  inodes_[folder].names.erase(name);
  ops_.push_back({Kind::unlink, folder, name});
}

int RecordedFiles::open(const std::string& path, int flags) {
  const std::lock_guard lock(mutex_);
  if (!path.starts_with(root_)) return FileCalls::open(path, flags);  // the folder around it
  const bool existed = fs::exists(path);
  const int file = FileCalls::open(path, flags);
  if (file < 0) return file;
  const size_t inode = existed ? inode_of(path) : new_inode(false);
  if (!existed) link(path, inode);
  open_files_[file] = inode;
  return file;
}
ssize_t RecordedFiles::pwrite(int file, const void* data, size_t bytes, off_t at) {
  const std::lock_guard lock(mutex_);
  ops_.push_back({Kind::write, open_files_.at(file), "", "", 0, at,
                  std::string(static_cast<const char*>(data), bytes)});
  return FileCalls::pwrite(file, data, bytes, at);
}
int RecordedFiles::close(int file) {
  const std::lock_guard lock(mutex_);
  open_files_.erase(file);
  return FileCalls::close(file);
}
int RecordedFiles::fsync(int file) {
  const std::lock_guard lock(mutex_);
  const auto known = open_files_.find(file);
  if (known != open_files_.end()) ops_.push_back({Kind::sync, known->second});
  return 0;
}
int RecordedFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const size_t folder = inode_of(Path(from).parent_path()), inode = inode_of(from);
  require(folder == inode_of(Path(to).parent_path()), "the model renames inside one folder only");
  const std::string old = Path(from).filename().string();
  inodes_[folder].names.erase(old);
  link(to, inode);
  ops_.back().from = old;
  return FileCalls::rename(from, to);
}
int RecordedFiles::mkdir(const std::string& path) {
  const std::lock_guard lock(mutex_);
  link(path, new_inode(true));
  return FileCalls::mkdir(path);
}
int RecordedFiles::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  drop(path);
  return FileCalls::remove(path);
}

int64_t RecordedFiles::calls_until_durable(const std::string& from) const {
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].from.find(from) == std::string::npos) continue;
    for (size_t s = i + 1; s < ops_.size(); ++s)
      if (ops_[s].kind == Kind::sync && ops_[s].inode == ops_[i].inode) return int64_t(s) + 1;
  }
  throw std::logic_error("the rename of " + from + " never became durable");
}

void RecordedFiles::after_power_loss(int64_t calls, uint64_t seed, const std::string& into,
                                     bool syncs) const {
  constexpr size_t kBlock = 64;  // [B]
  std::mt19937_64 random(seed);
  std::vector<size_t> synced(inodes_.size(), 0);  // ops before this one are durable
  for (size_t i = 0; i < size_t(calls) && syncs; ++i)
    if (ops_[i].kind == Kind::sync) synced[ops_[i].inode] = i;

  std::vector<std::map<std::string, size_t>> names;
  std::vector<std::string> contents;
  for (size_t inode = 0; inode < inodes_.size(); ++inode) {
    names.push_back(inodes_[inode].first);
    contents.push_back(inodes_[inode].content);
    bool lost = false;  // a folder loses all changes after the first that it loses
    for (size_t i = 0; i < size_t(calls); ++i) {
      const Op& op = ops_[i];
      if (op.inode != inode || op.kind == Kind::sync) continue;
      const bool durable = i < synced[inode];
      std::string& content = contents.back();
      if (op.kind == Kind::write) {
        for (size_t at = 0; at < op.data.size(); at += kBlock) {
          if (!durable && random() % 2) continue;
          const std::string part = op.data.substr(at, kBlock);
          content.resize(std::max(content.size(), size_t(op.at) + at + part.size()));
          content.replace(size_t(op.at) + at, part.size(), part);
        }
      } else if (durable || !(lost = lost || random() % 4 == 0)) {
        if (!op.from.empty()) names.back().erase(op.from);
        if (op.kind == Kind::link) names.back()[op.name] = op.target;
        if (op.kind == Kind::unlink) names.back().erase(op.name);
      }
    }
  }
  const std::function<void(size_t, const Path&)> make = [&](size_t inode, const Path& path) {
    if (!inodes_[inode].folder) {
      std::ofstream(path, std::ios::binary) << contents[inode];
      return;
    }
    fs::create_directories(path);
    for (const auto& [name, inner] : names[inode]) make(inner, path / name);
  };
  fs::remove_all(into);
  make(0, into);
}

}  // namespace zl::test
