// The files of this folder and the four stage files, as the build found them: embed_page.cmake
// writes the source.
#pragma once

#include <string_view>
#include <vector>

namespace zl::cli {

// page.html with the styles and scripts in it, but not yet what {{sources}} and {{report}} stand
// for.
std::string_view page_template();

struct EmbeddedFile {
  std::string_view name;  // "zero3"
  std::string_view text;
};
const std::vector<EmbeddedFile>& stage_files();  // those of stages/ that exist: ddp first

}  // namespace zl::cli
