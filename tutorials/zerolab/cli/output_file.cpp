#include "tutorials/zerolab/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tensor/error.h"
#include "tensor/io/file_calls.h"

namespace zl::cli {
namespace fs = std::filesystem;

// A relative path that does not exist stays relative in weakly_canonical.
fs::path resolved_path(const std::string& path) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(path, error), error);
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) || resolved_path(a) == resolved_path(b);
}

void require_output_file(const std::string& path, const std::string& in, bool force) {
  std::error_code ignored;
  const fs::file_status target = fs::status(path, ignored);
  const std::string folder = fs::path(path).parent_path();
  const bool special = fs::exists(target) && !fs::is_regular_file(target);
  const char* problem =
      path.empty()                           ? "is empty; give the name of the file to write"
      : fs::is_directory(target)             ? "is a folder; give the name of a file"
      : special || path.starts_with("/dev/") ? "is a device or a pipe; give the name of a file"
      : !in.empty() && same_file(path, in)   ? "is the file to read; give another name to write to"
      : !force && fs::exists(fs::symlink_status(path, ignored)) ? "exists; --force replaces it"
                                                                : nullptr;
  require_input(!problem, "'", path, "' ", problem ? problem : "");
  require_input(folder.empty() || fs::is_directory(folder, ignored), "'", path,
                "' cannot be written: there is no folder '", folder, "'");
}

OutputFile::OutputFile(const std::string& path, const std::string& in, bool force)
    : path_(path), force_(force) {
  require_output_file(path, in, force);
  std::error_code error;
  if (force && fs::is_symlink(path, error)) path_ = fs::canonical(path, error);
  if (error) path_ = path;
  temporary_ = temporary_beside(path_);
  write([](const std::string& temporary) { PendingFile{temporary}; });
}

OutputFile::~OutputFile() { unlink(temporary_.c_str()); }

void OutputFile::write(const std::function<void(const std::string&)>& writer) const {
  try {
    writer(temporary_);
  } catch (const OutputError& e) {
    std::string text = e.what();
    if (const size_t at = text.find(temporary_); at != std::string::npos)
      text.replace(at, temporary_.size(), path_);
    throw OutputError(text);
  }
}

void OutputFile::write_text(const std::string& text) const {
  write([&](const std::string& temporary) {
    PendingFile file(temporary);
    file.write(text.data(), text.size());
    file.commit();
  });
}

void OutputFile::commit() {
  struct stat old = {};
  const char *from = temporary_.c_str(), *to = path_.c_str();
  if (force_ && stat(to, &old) == 0) chmod(from, old.st_mode & 07777);
  int failed = renameat2(AT_FDCWD, from, AT_FDCWD, to, force_ ? 0 : RENAME_NOREPLACE);
  if (failed != 0 && errno == EINVAL) failed = link(from, to);  // an old or remote file system
  if (failed == 0) return;
  throw OutputError(str("'", path_, "' cannot be written: ", std::strerror(errno),
                        errno == EEXIST ? "; another program wrote it meanwhile" : ""));
}

}  // namespace zl::cli
