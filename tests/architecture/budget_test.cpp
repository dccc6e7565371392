// How much one file, function or folder may have: columns, lines, parameters, files, and what each
// stage file adds to the one before. A line is a plain line: comments count on purpose. What the
// parts of the tree may have in all, budgets_test.cpp says.
// The reader behind the budgets is itself tested on the ways in which this code writes functions.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

constexpr int columns = 100, file_lines = 400, function_lines = 60, parameters = 6;
// The emulator of cuBLASLt has the signatures of NVIDIA's header.
const std::set<std::string> of_nvidia = {"cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic"};
constexpr int stage_lines = 80, lesson_lines = 150;
constexpr int folder_files = 22;  // .h, .cpp and .cu of the folder itself, outside tests

// Folders that have more files than that, and how many they may have.
const std::map<std::string, int> large_folders = {{"tutorials", 25}};

// Characters of a line, not bytes: "…" is one column.
int width(const std::string& line) {
  return static_cast<int>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// A finding on `what` if it has more than `most`.
void limit(std::vector<std::string>& findings, const std::string& what, int has, const char* unit,
           int most) {
  if (has > most)
    findings.push_back(what + " has " + std::to_string(has) + " " + unit + ", at most " +
                       std::to_string(most));
}

// Raw strings of tests are exempt: JSON and other files are quoted as they are.
std::vector<std::string> check_columns(const File& file) {
  const auto lines = split_lines(file.text);
  const auto quoted = raw_string_lines(file.text);
  std::vector<std::string> findings;
  for (size_t i = 0; i < lines.size(); ++i)
    if (!is_test(file) || !quoted[i])
      limit(findings, finding(file, int(i) + 1, "the line"), width(lines[i]), "columns", columns);
  return findings;
}

std::vector<std::string> check_file_length(const File& file) {
  static const std::regex stage("stages/(ddp|zero1|zero2|zero3)\\.cpp");
  static const std::regex lesson("tutorials/[0-9][0-9]_[^/]*\\.cpp");
  const int lines = int(split_lines(file.text).size());
  std::vector<std::string> findings;
  limit(findings, finding(file, lines, "the file"), lines, "lines",
        std::regex_match(file.path, stage)    ? stage_lines
        : std::regex_match(file.path, lesson) ? lesson_lines
                                              : file_lines);
  return findings;
}

std::vector<std::string> check_functions(const File& file) {
  std::vector<std::string> findings;
  for (const Function& f : functions(file.text)) {
    limit(findings, finding(file, f.line, f.name), f.lines, "lines", function_lines);
    if (!of_nvidia.contains(f.name))
      limit(findings, finding(file, f.line, f.name), f.parameters, "parameters", parameters);
  }
  return findings;
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

std::vector<std::string> check_folders(const std::vector<File>& files) {
  std::map<std::string, int> count;
  for (const File& file : files)
    if (!is_test(file)) ++count[folder_of(file.path)];
  std::vector<std::string> findings;
  for (const auto& [folder, has] : count)
    limit(findings, folder, has, "files",
          large_folders.contains(folder) ? large_folders.at(folder) : folder_files);
  return findings;
}

std::string repeated(int times, const std::string& line) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

}  // namespace

TEST_CASE("files, functions and folders keep their budgets", "[architecture]") {
  for (const auto check : {check_columns, check_file_length, check_functions})
    CHECK(findings_of(check) == "");
  CHECK(joined(check_folders(source_files())) == "");
}

TEST_CASE("each stage file adds little to the one before it", "[architecture]") {
  const std::vector<std::string> stages = {"ddp", "zero1", "zero2", "zero3"};
  const std::vector<int> budget = {10, 22, 32};
  for (size_t i = 0; i < budget.size(); ++i) {
    const std::string a = "stages/" + stages[i] + ".cpp", b = "stages/" + stages[i + 1] + ".cpp";
    INFO("diff " << a << " " << b << " | grep -c '^>'");
    CHECK(added_lines(read_source(a), read_source(b)) <= budget[i]);
  }
}

TEST_CASE("a variant is its parent with few lines changed", "[architecture]") {
  const std::string parent = read_source("stages/zero3.cpp");
  for (const std::string name : {"hsdp", "zero3_hpz", "zero3_qwz", "zero3_qgz"}) {
    const std::string variant = read_source("stages/variants/" + name + ".cpp");
    INFO("diff stages/zero3.cpp stages/variants/" << name << ".cpp | grep -c '^[<>]'");
    CHECK(added_lines(parent, variant) + added_lines(variant, parent) <= 60);
    CHECK(added_lines(parent, variant) >= 5);  // the twin
  }
}

TEST_CASE("the column check counts characters and notices one too many", "[architecture]") {
  const std::string hundred(100, 'x'), dots = "…";
  CHECK(check_columns({"nn/gpt.cpp", "\n" + hundred + "\n"}).empty());
  CHECK(check_columns({"nn/gpt.cpp", "\n" + hundred + "x\n"}) ==
        std::vector<std::string>{"nn/gpt.cpp:2: the line has 101 columns, at most 100"});
  CHECK(check_columns({"nn/gpt.cpp", std::string(99, 'x') + dots}).empty());
  CHECK(check_columns({"nn/gpt.cpp", hundred + dots}).size() == 1);
  const std::string raw = "f(R\"(" + hundred + "\n" + hundred + ")\");\n";
  CHECK(check_columns({"tests/nn/gpt_test.cpp", raw}).empty());
  CHECK(check_columns({"nn/gpt.cpp", raw}).size() == 2);
  CHECK(check_columns({"tests/nn/gpt_test.cpp", raw + hundred + "x\n"}).size() == 1);
}

TEST_CASE("the folder check notices one file too many, except in tests", "[architecture]") {
  const auto files = [](const std::string& folder, int count) {
    return std::vector<File>(static_cast<size_t>(count), File{folder + "/a.h", ""});
  };
  CHECK(check_folders(files("nn/data", 22)).empty());
  CHECK(check_folders(files("nn/data", 23)) ==
        std::vector<std::string>{"nn/data has 23 files, at most 22"});
  CHECK(check_folders(files("tests/nn", 23)).empty());
}

TEST_CASE("the file budgets notice one line too many", "[architecture]") {
  for (const auto& [path, most] : std::map<std::string, int>{{"nn/gpt.cpp", 400},
                                                             {"stages/zero3.cpp", 80},
                                                             {"tutorials/06_zero1.cpp", 150},
                                                             {"tutorials/own_model.cpp", 400}}) {
    CHECK(check_file_length({path, repeated(most, "x;\n")}).empty());
    CHECK(check_file_length({path, repeated(most + 1, "x;\n")}).size() == 1);
  }
}

TEST_CASE("the function budgets notice one line and one parameter too many", "[architecture]") {
  const auto found = [](int lines, const std::string& more_parameters) {
    return joined(check_functions({"nn/gpt.cpp", "int f(int a, int b, int c, int d, int e, int g" +
                                                     more_parameters + ") {\n" +
                                                     repeated(lines - 2, "  g();\n") + "}\n"}));
  };
  CHECK(found(60, "") == "");
  CHECK(found(61, "") == "nn/gpt.cpp:1: f has 61 lines, at most 60\n");
  CHECK(found(60, ", int h") == "nn/gpt.cpp:1: f has 7 parameters, at most 6\n");
}

TEST_CASE("added lines are counted as diff counts them", "[architecture]") {
  CHECK(added_lines("a\nb\nc\n", "a\nb\nc\n") == 0);
  CHECK(added_lines("a\nb\nc\n", "a\nx\nc\nd\n") == 2);
  CHECK(added_lines("a\nb\nc\n", "b\n") == 0);
  CHECK(added_lines("", "a\nb\n") == 2);
}

TEST_CASE("functions are seen, with their parameters and lines, and nothing else is",
          "[architecture]") {
  // A text, and "name/parameters/lines …" of the functions in it.
  const std::vector<std::pair<std::string, std::string>> table = {
      // In namespaces, classes and after templates.
      {"namespace zl {\nint f(int a) {\n  return a;\n}\n}", "f/1/3"},
      {"class A : public B {\n public:\n  A() = default;\n  int g() const { return 1; }\n};",
       "A/0/0 g/0/1"},
      {"template <class T, int N = 3>\nvoid f(std::map<T, int> a, T b) {\n}\n", "f/2/3"},
      {"inline namespace a { namespace { void f(); } }", "f/0/0"},
      {"struct alignas(64) A { virtual void f(int, int) = 0; ~A(); };", "f/2/0 ~A/0/0"},
      // A constructor with initialisers is one function.
      {"A::A(int a)\n    : a_{a}, b_(2), c_{} {\n  f();\n}\nint g() { return 1; }",
       "A::A/1/4 g/0/1"},
      {"A::A(int a, int b) : a_{a} {}", "A::A/2/1"},
      // Values, comments, strings and directives are not functions.
      {"const std::map<std::string, int> m = {\n{\"a\", f(1)},\n};\nint x = g(1, 2);", ""},
      {"std::function<void(int, int)> f;", ""},
      {"// void f(int a) {\n/* void g() { */\nint h(char c = '}');", "h/1/0"},
      {"#define F(a, b) \\\n  void g(a) { b }\nvoid h();", "h/0/0"},
      {"const char* s = R\"(void f() {)\";\nvoid h(std::vector<int> v = {1, 2});", "h/1/0"},
      {"enum class E { a, b };\nusing F = int;", ""},
      {"NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(A, a, b);\nvoid f(int a);", "f/1/0"},
      // Operators and unusual declarations are.
      {"bool operator<(const A& a, const A& b);", "operator/2/0"},
      {"struct A { int operator()(int a) const; };", "operator/1/0"},
      {"auto f(int (*g)(int, int), int n) -> int { return n; }", "f/2/1"},
      {"[[nodiscard]] Work all_reduce(Tensor t, const std::string& what);", "all_reduce/2/0"},
      {"void f(void);\nint n = 1'000'000;\nvoid g(int64_t n = 1'000);", "f/0/0 g/1/0"}};
  for (const auto& [text, expected] : table) {
    std::string seen;
    for (const Function& f : functions(text))
      seen += (seen.empty() ? "" : " ") + f.name + "/" + std::to_string(f.parameters) + "/" +
              std::to_string(f.lines);
    INFO(text);
    CHECK(seen == expected);
  }
}

}  // namespace architecture
