// Folders for tests of state on disk.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/nn/scratch_folder.h"

namespace zl::test {

// A folder whose files are in memory, where there is one: a disk under load would make tests slow.
inline std::string fast_folder() {
  const std::string shared = "/dev/shm";
  return ::access(shared.c_str(), W_OK | X_OK) == 0
             ? shared
             : std::filesystem::temp_directory_path().string();
}

// A folder in it, removed at the end of the test.
class FastFolder : public ScratchFolder {
 public:
  FastFolder() : ScratchFolder(fast_folder()) {}
};

inline int64_t files_in(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}
inline int64_t open_files() { return files_in("/proc/self/fd"); }

}  // namespace zl::test
