#include "tests/architecture/test_cases.h"

#include <algorithm>
#include <regex>

namespace architecture {
namespace {

// The literals from `at` on, joined, up to the first comma or bracket; moves `at` to that.
std::string joined_literals(const std::string& text, const std::string& code, size_t& at) {
  std::string all;
  while ((at = code.find_first_of("\",)", at)) != std::string::npos && code[at] == '"') {
    const size_t end = code.find('"', at + 1);
    all += text.substr(at + 1, end - at - 1);
    at = end + 1;
  }
  return all;
}

}  // namespace

std::vector<TestCase> test_cases(const File& file) {
  static const std::regex start("(TEMPLATE_)?TEST_CASE\\(");
  const std::string code = code_only(file.text);  // quotes stay, what they enclose is blank
  std::vector<TestCase> cases;
  for (std::sregex_iterator it(code.begin(), code.end(), start), end; it != end; ++it) {
    const auto line = std::count(code.begin(), code.begin() + it->position(), '\n') + 1;
    auto at = static_cast<size_t>(it->position() + it->length());
    TestCase one{static_cast<int>(line), joined_literals(file.text, code, at), ""};
    if (at != std::string::npos && code[at] == ',')
      one.tags = joined_literals(file.text, code, ++at);
    cases.push_back(one);
  }
  return cases;
}

}  // namespace architecture
