// The text that is built into the library: the default training data.
#pragma once

#include <string_view>

namespace zl {

// The chapters of nn/data/corpus/ in the order of their names. nn/data/embed_corpus.cmake compiles
// them into the library, so no file is needed at run time. Plain ASCII.
std::string_view default_corpus();

}  // namespace zl
