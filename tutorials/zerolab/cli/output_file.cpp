#include "tutorials/zerolab/cli/output_file.h"

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
  if (!force_ && fs::exists(old))
    throw OutputError(str("'", path_, "' exists now; another program wrote it meanwhile"));
  writer(path_);
  if (fs::exists(old)) fs::permissions(path_, old.permissions(), error);
}

void OutputFile::write_text(const std::string& text) const {
  write([&](const std::string& path) {
    PendingFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  });
}

}  // namespace zl::cli
