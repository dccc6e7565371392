// How much there may be: lines of a file and of a function, parameters, and what the stage files
// add to each other. Lengths are counted on purpose in plain lines, comments included.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/architecture/function_scan.h"
#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

constexpr int file_lines = 400, function_lines = 60, parameters = 6, stage_lines = 80,
              lesson_lines = 150;

std::vector<std::string> check_file_length(const File& file) {
  static const std::regex stage("stages/(ddp|zero1|zero2|zero3)\\.cpp");
  static const std::regex lesson("tutorials/[0-9][0-9]_[^/]*\\.cpp");
  const int budget = std::regex_match(file.path, stage)    ? stage_lines
                     : std::regex_match(file.path, lesson) ? lesson_lines
                                                           : file_lines;
  const int lines = static_cast<int>(split_lines(file.text).size());
  if (lines <= budget) return {};
  return {finding(
      file, lines,
      "the file has " + std::to_string(lines) + " lines, at most " + std::to_string(budget))};
}

std::vector<std::string> check_functions(const File& file) {
  std::vector<std::string> findings;
  for (const Function& f : functions(file.text)) {
    if (f.lines > function_lines) {
      findings.push_back(finding(file, f.line,
                                 f.name + " has " + std::to_string(f.lines) + " lines, at most " +
                                     std::to_string(function_lines)));
    }
    if (f.parameters > parameters) {
      findings.push_back(finding(file, f.line,
                                 f.name + " has " + std::to_string(f.parameters) +
                                     " parameters, at most " + std::to_string(parameters)));
    }
  }
  return findings;
}

std::vector<std::string> check_file_name(const File& file) {
  static const std::regex banned("(.*[/_])?(utils?|helpers?|managers?|misc|common)[_.].*");
  if (!std::regex_match(file.path, banned)) return {};
  return {finding(file, 1, "the name says nothing about what is inside")};
}

// Lines that `diff a b` marks with '>': those of b outside a longest common subsequence.
int added_lines(const std::string& a, const std::string& b) {
  const auto x = split_lines(a), y = split_lines(b);
  std::vector<int> common(y.size() + 1, 0);  // of x[0..i) and y[0..j)
  for (const std::string& line : x) {
    int diagonal = 0;
    for (size_t j = 0; j < y.size(); ++j) {
      const int next = common[j + 1];
      common[j + 1] = line == y[j] ? diagonal + 1 : std::max(common[j], next);
      diagonal = next;
    }
  }
  return static_cast<int>(y.size()) - common[y.size()];
}

std::vector<std::string> check_all(std::vector<std::string> (*check)(const File&)) {
  std::vector<std::string> findings;
  for (const File& file : source_files()) {
    for (const std::string& one : check(file)) findings.push_back(one);
  }
  return findings;
}

std::string repeated(int times, const std::string& line) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

}  // namespace

TEST_CASE("every file keeps its budget of lines", "[architecture]") {
  const auto findings = check_all(check_file_length);
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("every function keeps its budgets of lines and parameters", "[architecture]") {
  const auto findings = check_all(check_functions);
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("every file name says what is inside", "[architecture]") {
  const auto findings = check_all(check_file_name);
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("each stage file adds little to the one before it", "[architecture]") {
  std::map<std::string, std::string> text;
  for (const File& file : source_files()) text[file.path] = file.text;
  const std::vector<std::string> stages = {"ddp", "zero1", "zero2", "zero3"};
  const std::vector<int> budget = {10, 22, 32};
  for (size_t i = 0; i < budget.size(); ++i) {
    const std::string a = "stages/" + stages[i] + ".cpp", b = "stages/" + stages[i + 1] + ".cpp";
    if (text.count(a) == 0 || text.count(b) == 0) continue;
    INFO("diff " << a << " " << b << " | grep -c '^>'");
    CHECK(added_lines(text[a], text[b]) <= budget[i]);
  }
}

TEST_CASE("the file budgets notice one line too many", "[architecture]") {
  CHECK(check_file_length({"nn/gpt.cpp", repeated(400, "x;\n")}).empty());
  CHECK(check_file_length({"nn/gpt.cpp", repeated(401, "x;\n")}).size() == 1);
  CHECK(check_file_length({"stages/zero3.cpp", repeated(80, "x;\n")}).empty());
  CHECK(check_file_length({"stages/zero3.cpp", repeated(81, "x;\n")}).size() == 1);
  CHECK(check_file_length({"tutorials/06_zero1.cpp", repeated(150, "x;\n")}).empty());
  CHECK(check_file_length({"tutorials/06_zero1.cpp", repeated(151, "x;\n")}).size() == 1);
  CHECK(check_file_length({"tutorials/own_model.cpp", repeated(151, "x;\n")}).empty());
}

TEST_CASE("the function budgets notice one line and one parameter too many", "[architecture]") {
  const auto text = [](int lines) {
    return "int f() {\n" + repeated(lines - 2, "  g();\n") + "}\n";
  };
  CHECK(check_functions({"nn/gpt.cpp", text(60)}).empty());
  CHECK(check_functions({"nn/gpt.cpp", text(61)}) ==
        std::vector<std::string>{"nn/gpt.cpp:1: f has 61 lines, at most 60"});
  CHECK(check_functions({"nn/gpt.h", "void f(int a, int b, int c, int d, int e, int g);"}).empty());
  CHECK(check_functions({"nn/gpt.h", "void f(int a, int b, int c, int d, int e, int g, int h);"})
            .size() == 1);
}

TEST_CASE("banned file names are found whole, not as parts of words", "[architecture]") {
  CHECK(check_file_name({"tensor/util.h", ""}).size() == 1);
  CHECK(check_file_name({"tensor/string_utils.cpp", ""}).size() == 1);
  CHECK(check_file_name({"stages/common.h", ""}).size() == 1);
  CHECK(check_file_name({"nn/memory_manager.h", ""}).size() == 1);
  CHECK(check_file_name({"nn/common_mode.h", ""}).size() == 1);
  CHECK(check_file_name({"dist/communicator.h", ""}).empty());
  CHECK(check_file_name({"tests/architecture/utilization_test.cpp", ""}).empty());
}

TEST_CASE("added lines are counted as diff counts them", "[architecture]") {
  CHECK(added_lines("a\nb\nc\n", "a\nb\nc\n") == 0);
  CHECK(added_lines("a\nb\nc\n", "a\nx\nc\nd\n") == 2);
  CHECK(added_lines("a\nb\nc\n", "b\n") == 0);
  CHECK(added_lines("", "a\nb\n") == 2);
}

}  // namespace architecture
