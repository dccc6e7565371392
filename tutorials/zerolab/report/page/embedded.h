// The files of this folder and the four stage files, as the build found them: embed_page.cmake
// writes the source.
#pragma once

#include <string_view>
#include <vector>

namespace zl::cli {

struct EmbeddedFile {
  std::string_view name;  // "page.html", "zero3.cpp"
  std::string_view text;
};

const std::vector<EmbeddedFile>& page_files();   // .html, .css and .js, in order of their names
const std::vector<EmbeddedFile>& stage_files();  // those of stages/ that exist: ddp.cpp first

}  // namespace zl::cli
