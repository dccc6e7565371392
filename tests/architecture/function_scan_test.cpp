// The reader behind the budgets is itself tested on the ways in which this code writes functions.

#include "tests/architecture/function_scan.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace architecture {
namespace {

// "name/parameters/lines …"
std::string seen(const std::string& text) {
  std::string all;
  for (const Function& f : functions(text)) {
    all += (all.empty() ? "" : " ") + f.name + "/" + std::to_string(f.parameters) + "/" +
           std::to_string(f.lines);
  }
  return all;
}

}  // namespace

TEST_CASE("functions are seen in namespaces, classes and after templates", "[architecture]") {
  CHECK(seen("namespace zl {\nint f(int a) {\n  return a;\n}\n}") == "f/1/3");
  CHECK(
      seen("class A : public B {\n public:\n  A() = default;\n  int g() const { return 1; }\n};") ==
      "A/0/0 g/0/1");
  CHECK(seen("template <class T, int N = 3>\nvoid f(std::map<T, int> a, T b) {\n}\n") == "f/2/3");
  CHECK(seen("inline namespace a { namespace { void f(); } }") == "f/0/0");
  CHECK(seen("struct alignas(64) A { virtual void f(int, int) = 0; ~A(); };") == "f/2/0 ~A/0/0");
}

TEST_CASE("a constructor with initialisers is one function", "[architecture]") {
  CHECK(seen("A::A(int a)\n    : a_{a}, b_(2), c_{} {\n  f();\n}\nint g() { return 1; }") ==
        "A::A/1/4 g/0/1");
  CHECK(seen("A::A(int a, int b) : a_{a} {}") == "A::A/2/1");
}

TEST_CASE("values, comments, strings and directives are not functions", "[architecture]") {
  CHECK(
      seen("const std::map<std::string, int> m = {\n{\"a\", f(1)},\n};\nint x = g(1, 2);").empty());
  CHECK(seen("std::function<void(int, int)> f;").empty());
  CHECK(seen("// void f(int a) {\n/* void g() { */\nint h(char c = '}');") == "h/1/0");
  CHECK(seen("#define F(a, b) \\\n  void g(a) { b }\nvoid h();") == "h/0/0");
  CHECK(seen("const char* s = R\"(void f() {)\";\nvoid h(std::vector<int> v = {1, 2});") ==
        "h/1/0");
  CHECK(seen("enum class E { a, b };\nusing F = int;").empty());
}

TEST_CASE("operators and unusual declarations are counted", "[architecture]") {
  CHECK(seen("bool operator<(const A& a, const A& b);") == "operator/2/0");
  CHECK(seen("struct A { int operator()(int a) const; };") == "operator/1/0");
  CHECK(seen("auto f(int (*g)(int, int), int n) -> int { return n; }") == "f/2/1");
  CHECK(seen("[[nodiscard]] Work all_reduce(Tensor t, const std::string& what);") ==
        "all_reduce/2/0");
  CHECK(seen("void f(void);\nint n = 1'000'000;\nvoid g(int64_t n = 1'000);") == "f/0/0 g/1/0");
}

}  // namespace architecture
