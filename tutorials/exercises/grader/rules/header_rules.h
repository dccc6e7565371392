// Which files the compiler read for a student's file.
#pragma once

#include <string>
#include <vector>

namespace zl::exercises {

// `dependencies` is what the compiler wrote with -MMD in `folder`: "a.o: a.cpp b.h". Returns the
// first file in it, other than the first one, that is neither one of `headers` below
// `include_folder` nor included by them in turn; "" if there is none.
std::string foreign_header(const std::string& dependencies, const std::string& folder,
                           const std::vector<std::string>& headers,
                           const std::string& include_folder);

}  // namespace zl::exercises
