// A file that gets its final name only when it is complete.
#pragma once

#include <cstddef>
#include <string>

#include "tensor/io/file_calls.h"

namespace zl {

// A new name in the folder of `path`: ".zerolab-", and which process it belongs to.
std::string temporary_beside(const std::string& path);

// Writes a temporary file in the folder of `path`; commit() renames it. So `path` is at every time
// the old file or the complete new one, also after Ctrl-C. Without commit() the destructor removes
// the temporary file. After a crash the next PendingFile in that folder does; files of another
// host, boot or container stay, because this one does not see their processes. Throws OutputError
// if the file cannot be written.
class PendingFile {
 public:
  explicit PendingFile(const std::string& path, FileCalls& calls = system_file_calls());
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  FileCalls& calls_;
  std::string path_, temporary_;
  WrittenFile file_;
};

}  // namespace zl
