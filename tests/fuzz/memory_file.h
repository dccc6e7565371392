// A file in memory that has a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace zl::test {

class MemoryFile {
 public:
  MemoryFile(const uint8_t* bytes, size_t size) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (file_ < 0 || write(file_, bytes, size) != ssize_t(size)) std::abort();
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace zl::test
