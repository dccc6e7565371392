#include "tensor/io/pending_file.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tensor/error.h"
#include "tensor/random.h"

namespace zl {

namespace fs = std::filesystem;
namespace {

// The time at which a process began, as the system writes it; "" if it does not say or see it.
std::string start_of(int process) {
  std::ifstream file(str("/proc/", process, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.rfind(')'), text.size())));
  std::string field;
  for (int i = 2; i <= 22; ++i) fields >> field;  // proc(5): the command in brackets is the second
  return fields ? field : "";
}

// The same for processes that see each other: of one boot, and not in different containers.
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
    unsigned long long began = 0;
    if (!name.starts_with(seen) ||
        std::sscanf(name.c_str() + seen.size(), "%d-%llu-", &process, &began) != 2)
      continue;
    const std::string now = start_of(process);
    const bool gone = now.empty() ? ::kill(process, 0) != 0 && errno == ESRCH : now != str(began);
    if (gone) calls.remove(at->path().string());
  }
}

}  // namespace

std::string temporary_beside(const std::string& path) {
  static std::atomic<int> number{0};  // several ranks may write at the same time
  const std::string name = str(prefix(), ::getpid(), '-', start_of(::getpid()), '-', number++);
  return (fs::path(path).parent_path() / name).string();
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
