#include "tutorials/zerolab/cli/output_file.h"

#include <filesystem>

#include "tensor/error.h"

namespace zl::cli {

void require_output_file(const std::string& path, const std::string& in, bool force) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  require_input(!path.empty(), "the name of the file to write is empty");
  require_input(!fs::is_directory(path, ignored), "'", path,
                "' is a folder; give the name of a file");
  const fs::file_status there = fs::status(path, ignored);
  require_input(!fs::exists(there) || fs::is_regular_file(there), "'", path,
                "' is a device or a pipe; give the name of a file");
  const bool same = !in.empty() && (path == in || fs::equivalent(path, in, ignored));
  require_input(!same, "'", path, "' is the file to read; give another name to write to");
  require_input(force || !fs::exists(fs::symlink_status(path, ignored)), "'", path,
                "' exists; --force replaces it");
  const fs::path folder = fs::path(path).parent_path();
  require_input(folder.empty() || fs::is_directory(folder, ignored), "'", path,
                "' cannot be written: there is no folder '", folder.string(), "'");
}

}  // namespace zl::cli
