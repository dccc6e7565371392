// A file that a command is about to write.
#pragma once

#include <string>

namespace zl::cli {

// Throws InputError if `path` is a folder, is the file `in` under whatever name ("" if there is
// none), or exists and `force` is not given, so that nothing is replaced by accident.
void require_output_file(const std::string& path, const std::string& in, bool force);

}  // namespace zl::cli
