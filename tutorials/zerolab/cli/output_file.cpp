#include "tutorials/zerolab/cli/output_file.h"

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
  if (fs::is_symlink(path, error)) path_ = fs::canonical(path, error);
  if (error) path_ = path;
  PendingFile{path_};
}

void OutputFile::write(const std::function<void(const std::string&)>& writer) const {
  std::error_code error;
  const fs::file_status old = fs::status(path_, error);
  const std::string made = force_ ? path_ : temporary_beside(path_);
  try {
    writer(made);
  } catch (const OutputError& e) {
    std::string text = e.what();
    if (const size_t at = text.find(made); at != text.npos) text.replace(at, made.size(), path_);
    throw OutputError(text);
  }
  if (force_ && fs::exists(old)) fs::permissions(path_, old.permissions(), error);
  if (force_) return;
  int failed = renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
  if (failed != 0 && errno == EINVAL) failed = link(made.c_str(), path_.c_str());  // NFS
  const int reason = errno;
  fs::remove(made, error);
  if (failed == 0) return;
  throw OutputError(str("'", path_, "' cannot be written: ", std::strerror(reason),
                        reason == EEXIST ? "; another program wrote it meanwhile" : ""));
}

void OutputFile::write_text(const std::string& text) const {
  write([&](const std::string& path) {
    PendingFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  });
}

}  // namespace zl::cli
