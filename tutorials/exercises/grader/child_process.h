// A process with limits of time, memory, files and processes, and a folder: neither leaves anything
// behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tensor/error.h"

namespace zl::exercises {

// A folder for what one grading builds, removed with everything in it at the end.
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

struct ChildLimits {
  std::chrono::duration<double> time{60};
  int64_t memory = 0;       // [B] of address space; 0: no limit
  int64_t file = 64 << 20;  // [B] of each file that it writes, its output among them
  std::string folder;       // where it runs and puts temporary files; "": where this process runs
  // Root becomes the unprivileged user 65534, and the number of processes has a limit. All
  // processes that it has started end with it: this process must have no other children.
  bool student = false;
  bool terminal = false;                   // it has this process's terminal and environment
  std::function<bool()> interrupted = {};  // asked while it runs
};

inline constexpr int kNotStarted = 3;  // exit code of a judge that cannot start the program
inline constexpr int kResultFile = 3;  // the file descriptor of ChildEnd::result

struct ChildEnd {
  int code = 0, signal = 0;  // signal: the one that killed it, or 0
  bool timed_out = false;
  std::string output;  // stdout and stderr as they came
  std::string result;  // what it wrote to kResultFile
  bool failed() const { return code != 0 || signal != 0 || timed_out; }
};

// Runs `command`, a path or a name on PATH and its arguments, in a new session. Throws Interrupted,
// and InputError if the command cannot be started.
ChildEnd run_child(const std::vector<std::string>& command, const ChildLimits& limits);

}  // namespace zl::exercises
