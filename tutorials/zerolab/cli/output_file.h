// A file that a command is about to write.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace zl::cli {

// Throws InputError if `path` is a folder, a device or a pipe, is the file `in` under any name (""
// if there is none), or exists and `force` is not given. So nothing is replaced by accident.
void require_output_file(const std::string& path, const std::string& in, bool force);

// The absolute path without links, also of what does not exist yet.
std::filesystem::path resolved_path(const std::string& path);

// The same file, under whatever names, also if it does not exist yet.
bool same_file(const std::string& a, const std::string& b);

// The file gets its name when it is complete. Unless `force` was given, a file of that name that
// appeared since the constructor is kept, and write() throws OutputError. With `force` a symbolic
// link stays a link and its target is replaced, and the new file has the mode of the old one.
class OutputFile {
 public:
  // Checks as require_output_file(), and that the folder can be written to.
  OutputFile(const std::string& path, const std::string& in, bool force);

  // `writer` writes the file of the name that it gets, completely or not at all. Its OutputErrors
  // name this file instead.
  void write(const std::function<void(const std::string& path)>& writer) const;
  void write_text(const std::string& text) const;

 private:
  std::string path_;  // of the file itself, links resolved
  const bool force_;
};

}  // namespace zl::cli
