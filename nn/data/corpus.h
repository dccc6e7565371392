// The text that ships: what a model learns from when no data are given.
#pragma once

#include <string_view>

namespace zl {

// The chapters of nn/corpus/ in the order of their names. nn/embed_corpus.cmake puts them into the
// program, so it needs no file at run time. Plain ASCII.
std::string_view default_corpus();

}  // namespace zl
