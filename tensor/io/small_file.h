// A whole file that people write, such as a configuration.
#pragma once

#include <string>

namespace zl {

// What is read, for messages: "configuration", and the bytes that no such file exceeds.
struct SmallFile {
  const char* what;
  size_t most;  // [B]
};

// Throws InputError with one sentence if the file cannot be read, is a folder, or is larger. A pipe
// or device must deliver something within two seconds.
std::string read_small_file(const std::string& path, const SmallFile& file);

}  // namespace zl
