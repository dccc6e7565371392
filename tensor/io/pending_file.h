// A file that stands under its final name only when it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace zl {

// Writes beside `path`, under a temporary name, and renames at the end: under `path` there is
// either the old file or the whole new one, also after Ctrl-C. Leaving without commit() removes
// what was written.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(const void* data, size_t bytes);  // throws InputError if the file cannot be written
  void commit();                               // likewise

 private:
  [[noreturn]] void fail() const;

  std::string path_, temporary_;
  int file_ = -1;
  int64_t written_ = 0;  // [B]
};

}  // namespace zl
