// A folder for what one grading builds, removed with everything in it at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tensor/error.h"

namespace zl::exercises {

// All may read. Only its owner may write, unless `mode` says that the user of the checks may, too.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(unsigned mode = 0755) {
    const char* place = std::getenv("TMPDIR");
    std::string pattern =
        std::string(place && *place ? place : "/tmp") + "/zerolab-exercise-XXXXXX";
    require_input(mkdtemp(pattern.data()) != nullptr, "cannot create a folder in ",
                  std::filesystem::path(pattern).parent_path().string(),
                  "; set TMPDIR to a folder that can be written");
    path_ = std::filesystem::absolute(pattern).string();
    std::filesystem::permissions(path_, std::filesystem::perms(mode));
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace zl::exercises
