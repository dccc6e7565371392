#pragma once
// The TEST_CASE lines of a source file.

#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {

struct TestCase {
  int line;  // from 1
  std::string name;
  std::string tags;  // "[nn][slow]"
};

// All cases of the file, templates included, in order. Literals that follow each other are one
// name.
std::vector<TestCase> test_cases(const File& file);

}  // namespace architecture
