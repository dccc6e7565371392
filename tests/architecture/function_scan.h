#pragma once
// Counts lines and parameters of functions without a compiler: a rough reader of C++.

#include <string>
#include <vector>

namespace architecture {

struct Function {
  std::string name;
  int line = 0;   // where its declaration starts, from 1
  int lines = 0;  // to its closing brace; 0 if it is only declared
  int parameters = 0;
};

// The functions that are declared or defined in namespaces and classes. Macros that look like
// functions count too (TEST_CASE); lambdas belong to the function around them.
std::vector<Function> functions(const std::string& text);

}  // namespace architecture
