// What the object of a student's file may use and define: texts are compiled and refused, and
// similar ones pass.
#include "tutorials/exercises/grader/rules/object_rules.h"

#include <catch2/catch_test_macros.hpp>

#include "tensor/error.h"
#include "tests/exercises/grading.h"
#include "tests/zerolab/process.h"
#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/exercises/grader/rules/declarations.h"
#include "tutorials/exercises/grader/rules/elf_object.h"
#include "tutorials/exercises/grader/rules/header_rules.h"

namespace zl::exercises {
namespace {

Exercise stage_exercise(const std::string& stage) {
  return {.headers = {"stages/stage.h", "tensor/kernels.h"},
          .functions = {"zl::Stage::", "zl::FlatOptimizer::", "zl::kernel::"},
          .defines = {"zl::make_" + stage + "("}};
}

// Compiles a text, without the rules of the source. The same words each time, for ccache.
std::string object_of(const cli::ScratchFolder& folder, const std::string& text) {
  std::vector<std::string> command = toolchain().launcher;
  command.push_back(toolchain().compiler);
  for (const std::string& flag : toolchain().flags) command.push_back(flag);
  cli::write_file(folder / "a.cpp", text);
  for (const char* word : {"-O1", "-c", "a.cpp", "-o", "a.o"}) command.push_back(word);
  const ChildEnd end =
      run_child(command, {.time = std::chrono::seconds(60), .folder = folder.path()});
  INFO(end.output);
  REQUIRE(end.code == 0);
  return folder / "a.o";
}

std::string violations(const Exercise& exercise, const std::string& text) {
  const cli::ScratchFolder folder;
  return object_violations(exercise, object_of(folder, text), text);
}

// Of the tests' own exercise.
std::string with(const std::string& code, const std::string& statement = "return 2 * x;") {
  return violations(probe(), "#include \"tests/exercises/probe/answer.h\"\n" + code +
                                 "\ndouble zl::exercises::answer(double x) { " + statement + " }");
}

bool refused(const std::string& found, const std::string& part) {
  INFO(found);
  const bool is = cli::contains(found, part);
  CHECK(is);
  return is;
}

}  // namespace

TEST_CASE("the object of each stage of the library is allowed in its own exercise only",
          "[exercises]") {
  for (const std::string stage : {"zero1", "zero2", "zero3"}) {
    const cli::ScratchFolder folder;
    const std::string text = cli::read_file(ZEROLAB_SOURCE_DIR "/stages/" + stage + ".cpp"),
                      object = object_of(folder, text);
    Exercise exercise = stage_exercise(stage);
    CHECK(object_violations(exercise, object, text) == "");
    CHECK(refused(object_violations(stage_exercise("ddp"), object, text),
                  "it defines zl::make_" + stage));
    exercise.functions = {"zl::FlatOptimizer::", "zl::kernel::"};
    CHECK(refused(object_violations(exercise, object, text), "zl::Stage::reduce_scatter"));
  }
}

TEST_CASE("a student's object may use the C++ library, mathematics and printing", "[exercises]") {
  const std::string headers = R"(
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>
)";
  CHECK(with(headers, R"(
      std::map<std::string, std::vector<double>> all;
      std::unordered_map<int, std::string> other;
      std::ostringstream text;
      text << x << "a" << all.size();
      all[text.str()].push_back(std::exp(x) + std::sqrt(float(x)) + std::lround(x));
      std::stable_sort(all[""].begin(), all[""].end());
      other[3] = std::to_string(x);
      const std::function<double(double)> f = [&](double y) { return x + y; };
      std::fprintf(stderr, "%g\n", x);
      std::printf("%g\n", std::hypot(x, x));
      std::puts("x");
      const auto shared = std::make_shared<std::vector<float>>(3);
      std::variant<int, std::string> either = "text";
      if (x > 1e9) throw std::runtime_error("large " + std::get<std::string>(either));
      assert(x < 1e12);
      try { return f(all.at("none").at(0)); } catch (const std::out_of_range& e) { return 1; }
      )") == "");
}

TEST_CASE("a student's object may not use files, processes, threads or memory past the ledger",
          "[exercises]") {
  const auto uses = [](const std::string& header, const std::string& statement,
                       const std::string& part) {
    return refused(with("#include <" + header + ">", statement + "; return x;"), part);
  };
  CHECK(uses("cstdio", "std::fopen(\"a\", \"r\")", "it uses fopen"));
  CHECK(uses("fstream", "std::ofstream(\"a\") << x", "it uses std::basic_ofstream"));
  CHECK(uses("cstdlib", "std::exit(0)", "it uses exit: throw"));
  CHECK(uses("cstdlib", "std::_Exit(0)", "it uses _Exit: throw"));
  CHECK(uses("cstdlib", "std::system(\"true\")", "it uses system"));
  CHECK(uses("cstdlib", "std::getenv(\"HOME\")", "it uses getenv"));
  CHECK(uses("cstdlib", "x += *static_cast<char*>(std::malloc(9))", "it uses malloc"));
  CHECK(uses("unistd.h", "(void)!write(3, \"a\", 1)", "it uses write"));
  CHECK(uses("unistd.h", "fork()", "it uses fork"));
  CHECK(uses("thread", "std::thread([] {}).join()", "std::thread::"));
  CHECK(uses("random", "x = std::random_device()()", "it uses std::random_device"));
  CHECK(uses("iostream", "std::cout << x", "it uses std::cout"));
  CHECK(uses("filesystem", "std::filesystem::remove(\"a\")", "it uses std::filesystem::"));
  CHECK(uses("new", "x += *new (std::align_val_t(64)) char[9]", "past the ledger"));
  CHECK(uses("memory_resource", "x += std::pmr::new_delete_resource() != nullptr", "std::pmr"));
  // Both keep values where the checks do not count them, or all ranks see them.
  CHECK(uses("exception", "x += std::make_exception_ptr(x) != nullptr", "std::__exception_ptr"));
  CHECK(uses("locale", "std::locale::global(std::locale())", "std::locale::global"));
  CHECK(uses("csignal", "std::raise(9)", "it uses raise"));
  CHECK(refused(with("#include \"tutorials/exercises/grader/record.h\"",
                     "return double(zl::exercises::encode({}, 0).size());"),
                "it uses zl::exercises::encode"));
}

// A sanitizer adds variables and code before main() to each object.
TEST_CASE("a student's object has no variables that live longer than a call",
          "[exercises][unsanitized]") {
  CHECK(refused(with("static double calls; ", "return ++calls;"), "'calls' is a global or static"));
  CHECK(refused(with("static double calls = 3; ", "return ++calls;"), "'calls'"));
  CHECK(refused(with("", "static int calls = 0; return ++calls;"), "calls' is a global or static"));
  CHECK(refused(with("static thread_local int calls; ", "return ++calls;"), "'calls'"));
  CHECK(refused(with("inline int calls; ", "return ++calls;"), "calls"));
  CHECK(refused(with("#include <vector>", "static std::vector<int> a(3); return ++a[0];"),
                "whole program"));
  CHECK(refused(with("#include <string>\nstatic int a = 3; static int* b = &a;", "return ++*b;"),
                "global or static"));
  CHECK(with("static const double factors[] = {2, 3}; constexpr int one = 1;",
             "static const int two = 2; return factors[int(x)] * one * two;") == "");
  CHECK(with("static const char* const names[] = {\"a\", \"b\"};", "return names[int(x)][0];") ==
        "");
}

TEST_CASE("no code of a student's object runs before or after the checks",
          "[exercises][unsanitized]") {
  const std::string prints = "#include <cstdio>\n", rule = "code runs before or after the checks";
  CHECK(refused(with(prints + "[[gnu::constructor]] static void f() { std::puts(\"\"); }"), rule));
  CHECK(refused(with(prints + "[[gnu::destructor]] static void f() { std::puts(\"\"); }"), rule));
  CHECK(refused(with(prints + "namespace { struct A { A() { std::puts(\"\"); } } a; }"), rule));
  CHECK(refused(with(prints + "static const int a = std::puts(\"\");"), rule));
  CHECK(with(prints + "namespace { struct A { A() { std::puts(\"\"); } }; }", "A a; return x;") ==
        "");
  // The loader calls f() to find g().
  CHECK(refused(with("extern \"C\" { static void* f() { return nullptr; }\n"
                     "static int g() __attribute__((ifunc(\"f\"))); }",
                     "return g();"),
                "an ifunc"));
  CHECK(refused(with("[[gnu::section(\".mine\"), gnu::used]] static const int a = 3;"),
                "the section .mine"));
  // The name of a sanitizer changes nothing.
  CHECK(refused(with(prints + "static const int a = std::puts(\"\");\nextern \"C\" { "
                              "[[gnu::used]] static void __asan_x() {} }"),
                rule));
}

TEST_CASE("a file that the compiler read without being a header of the exercise is found",
          "[exercises]") {
  const std::vector<std::string> headers = {"tensor/kernels.h"};
  const auto foreign = [&](const std::string& dependencies) {
    return foreign_header(dependencies, ZEROLAB_SOURCE_DIR "/stages", headers, ZEROLAB_SOURCE_DIR);
  };
  CHECK(foreign("a.o: a.cpp ../tensor/kernels.h \\\n " ZEROLAB_SOURCE_DIR "/tensor/shape.h\n") ==
        "");
  CHECK(foreign("a.o: a.cpp ../tensor/kernels.h zero1.cpp\n") == "zero1.cpp");
  CHECK(foreign("a.o: a.cpp /etc/a\\ file ../tensor/kernels.h\n") == "/etc/a file");
  CHECK(foreign("a.o: a.cpp\n") == "");
  CHECK(foreign("") == "");
}

TEST_CASE("a student's object defines what the task says and nothing else that others see",
          "[exercises]") {
  CHECK(refused(with("double helper(double x) { return x; }"), "it defines helper(double)"));
  CHECK(refused(with("int main() {}"), "it defines main"));
  CHECK(refused(with("#include <cstddef>\nvoid* operator new(size_t) { return nullptr; }"),
                "it replaces operator new"));
  CHECK(refused(with("#include \"tutorials/exercises/grader/measure.h\"\n"
                     "zl::exercises::Record zl::exercises::measure(const std::string&, const "
                     "CheckOptions&) { return {}; }"),
                "it defines zl::exercises::measure"));
  CHECK(refused(with("extern \"C\" long write(int, const void*, unsigned long) { return 0; }"),
                "it defines write"));
  // An inline function of the same name as one of a header replaces it in the whole program.
  CHECK(refused(with("namespace zl::exercises { inline double judge(double x) { return x; } }",
                     "double (*volatile f)(double) = judge; return f(x);"),
                "it defines zl::exercises::judge"));
  CHECK(refused(with("namespace zl::exercises { template <class T> T judge(T x) { return x; } }",
                     "double (*volatile f)(double) = judge<double>; return f(x);"),
                "it defines double zl::exercises::judge<double>"));
  // Inline functions of headers are in the object too.
  CHECK(with("#include \"tensor/error.h\"\n#include \"tensor/shape.h\"",
             "double (*volatile f)(double) = zl::exercises::answer; "
             "return f(x) + double((std::to_string(x) + zl::str(zl::in_words({3}))).size());") ==
        "");
  CHECK(with("namespace { double helper(double x) { return x; } template <class T> T same(T t) { "
             "return t; } struct Both { virtual ~Both() = default; virtual double f() = 0; }; "
             "struct One : Both { double f() override { return helper(same(3.)); } }; }",
             "return One().f();") == "");
}

TEST_CASE("a class that others see is refused in one line", "[exercises]") {
  const std::string found =
      with("namespace zl { struct A { virtual ~A() {} virtual int f() { return 1; } }; }",
           "zl::A a; zl::A* volatile p = &a; return p->f();");
  CHECK(found ==
        "it defines class zl::A, which the task does not ask for: put functions, classes and "
        "constants of yours into an anonymous namespace");
}

TEST_CASE("a file may define what it declares", "[exercises]") {
  const Declarations file(
      "namespace zl::exercises {\n"
      "struct A : B { A(); std::vector<int> f() { return g(1); } };\n"
      "bool operator==(A, A); }\n"
      "namespace other { const char* h(const B& b) { return std::to_string(b).c_str(); } }\n");
  for (const char* name : {"zl::exercises::A::A()", "zl::exercises::A::", "zl::exercises::A::f()",
                           "zl::exercises::operator==(A, A)", "other::h(B)", "h<int>(int)"}) {
    CAPTURE(name);
    CHECK(file.may_define(name));
  }
  for (const char* name : {"zl::exercises::g(int)", "other::to_string(B)", "zl::B::~B()",
                           "zl::exercises::B::f()", "std::string::c_str()"}) {
    CAPTURE(name);
    CHECK_FALSE(file.may_define(name));
  }
}

TEST_CASE("a file that is no object is refused", "[exercises]") {
  const cli::ScratchFolder folder;
  CHECK_THROWS_AS(read_elf(cli::write_file(folder / "a.o", "text")), InputError);
  CHECK_THROWS_AS(read_elf(folder / "none.o"), InputError);
  const std::string whole = cli::read_file(object_of(folder, "int a() { return 1; }"));
  CHECK(read_elf(folder / "a.o").symbols.size() > 1);
  for (const size_t size : {whole.size() / 2, size_t(100), size_t(10)})
    CHECK_THROWS_AS(read_elf(cli::write_file(folder / "b.o", whole.substr(0, size))), InputError);
}

}  // namespace zl::exercises
