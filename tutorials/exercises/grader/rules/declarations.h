// The names that a file declares.
#pragma once

#include <set>
#include <string>

namespace zl::exercises {

// Read from the tokens of a file, not from a parse of it.
class Declarations {
 public:
  explicit Declarations(const std::string& text);

  // Whether the file may define `name`, a function "zl::f(int)" or "zl::A::f()", or a class
  // "zl::A::": whether it opens each namespace and class of the name, and declares the function. So
  // a definition that the file does not declare comes from a header.
  bool may_define(const std::string& name) const;

 private:
  std::set<std::string> scopes_, functions_;
};

}  // namespace zl::exercises
