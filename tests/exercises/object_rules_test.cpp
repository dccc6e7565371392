// What the object of a student's file may use and define: texts are compiled and refused, and
// similar ones pass.
#include "tutorials/exercises/grader/rules/object_rules.h"

#include <catch2/catch_test_macros.hpp>

#include "tensor/error.h"
#include "tests/exercises/grading.h"
#include "tests/paths.h"
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
          .defines = {"zl::stage_" + stage + "()"}};
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

void check_said(const std::string& said, const std::string& part) {
  CAPTURE(said, part);
  CHECK((part.empty() ? said.empty() : cli::contains(said, part)));
}

// A file of the tests' own exercise, and a part of what is said about it; "": it is allowed.
struct File {
  std::string code, statement, part;
};

std::string violations(const File& file) {
  const std::string text = probe_file(file.code + "\ndouble zl::exercises::answer(double x) { " +
                                      file.statement + "; return 2 * x; }");
  const cli::ScratchFolder folder;
  return object_violations(probe(), object_of(folder, text), text);
}

void check_files(const std::vector<File>& files) {
  for (const File& file : files) {
    CAPTURE(file.code, file.statement);
    check_said(violations(file), file.part);
  }
}

}  // namespace

TEST_CASE("the object of each stage of the library is allowed in its own exercise only",
          "[exercises]") {
  for (const std::string stage : {"zero1", "zero2", "zero3"}) {
    const cli::ScratchFolder folder;
    const std::string text = cli::read_file(ZEROLAB_SOURCE_DIR "/stages/" + stage + ".cpp"),
                      object = object_of(folder, text);
    Exercise exercise = stage_exercise(stage);
    check_said(object_violations(exercise, object, text), "");
    check_said(object_violations(stage_exercise("ddp"), object, text),
               "it defines zl::stage_" + stage);
    exercise.functions = {"zl::FlatOptimizer::", "zl::kernel::"};
    check_said(object_violations(exercise, object, text), "zl::Stage::reduce_scatter");
  }
}

TEST_CASE("a student's object may use the C++ library, mathematics and printing", "[exercises]") {
  std::string headers;
  for (const char* header :
       {"algorithm", "cassert", "cmath", "cstdio", "functional", "map", "memory", "numeric",
        "optional", "sstream", "stdexcept", "string", "unordered_map", "variant", "vector"})
    headers += std::string("#include <") + header + ">\n";
  check_files({{headers, R"(
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
      )",
                ""}});
}

TEST_CASE("a student's object may not use files, processes, threads or memory past the ledger",
          "[exercises]") {
  const File uses[] = {
      {"cstdio", "std::fopen(\"a\", \"r\")", "it uses fopen"},
      {"cstdio", "fdopen(3, \"w\")", "it uses fdopen"},
      {"fstream", "std::ofstream(\"a\") << x", "it uses std::basic_ofstream"},
      {"cstdlib", "std::exit(0)", "it uses exit: throw"},
      {"cstdlib", "std::_Exit(0)", "it uses _Exit: throw"},
      {"cstdlib", "std::system(\"true\")", "it uses system"},
      {"cstdlib", "std::getenv(\"HOME\")", "it uses getenv"},
      {"cstdlib", "x += *static_cast<char*>(std::malloc(9))", "it uses malloc"},
      {"unistd.h", "(void)!write(3, \"a\", 1)", "it uses write"},
      {"unistd.h", "fork()", "it uses fork"},
      {"thread", "std::thread([] {}).join()", "std::thread::"},
      {"random", "x = std::random_device()()", "it uses std::random_device"},
      {"iostream", "std::cout << x", "it uses std::cout"},
      {"filesystem", "std::filesystem::remove(\"a\")", "it uses std::filesystem::"},
      {"new", "x += *new (std::align_val_t(64)) char[9]", "past the ledger"},
      {"memory_resource", "x += std::pmr::new_delete_resource() != nullptr", "std::pmr"},
      // Both keep values where the checks do not count them, or all ranks see them.
      {"exception", "x += std::make_exception_ptr(x) != nullptr", "std::__exception_ptr"},
      {"locale", "std::locale::global(std::locale())", "std::locale::global"},
      {"csignal", "std::raise(9)", "it uses raise"}};
  for (const auto& [header, statement, part] : uses)
    check_files({{"#include <" + header + ">", statement, part}});
  check_files(
      {{"#include \"tutorials/exercises/grader/record.h\"",
        "return double(zl::exercises::encode({}, 0).size())", "it uses zl::exercises::encode"}});
}

// A sanitizer adds variables and code before main() to each object.
TEST_CASE("a student's object has no variables that live longer than a call",
          "[exercises][unsanitized]") {
  check_files({
      {"static double calls;", "return ++calls", "'calls' is a global or static"},
      {"static double calls = 3;", "return ++calls", "'calls'"},
      {"", "static int calls = 0; return ++calls", "calls' is a global or static"},
      {"static thread_local int calls;", "return ++calls", "'calls'"},
      {"inline int calls;", "return ++calls", "calls"},
      {"#include <vector>", "static std::vector<int> a(3); return ++a[0]", "whole program"},
      {"static int a = 3; static int* b = &a;", "return ++*b", "global or static"},
      {"static const double factors[] = {2, 3}; constexpr int one = 1;",
       "static const int two = 2; return factors[int(x)] * one * two", ""},
      {"static const char* const names[] = {\"a\", \"b\"};", "return names[int(x)][0]", ""},
  });
}

TEST_CASE("no code of a student's object runs before or after the checks",
          "[exercises][unsanitized]") {
  const std::string print = "std::puts(\"\");", in = "#include <cstdio>\n",
                    rule = "code runs before or after the checks";
  check_files({
      {in + "[[gnu::constructor]] static void f() { " + print + " }", "", rule},
      {in + "[[gnu::destructor]] static void f() { " + print + " }", "", rule},
      {in + "namespace { struct A { A() { " + print + " } } a; }", "", rule},
      {in + "static const int a = " + print, "", rule},
      {in + "namespace { struct A { A() { " + print + " } }; }", "A a; return x", ""},
      // The loader calls f() to find g().
      {"extern \"C\" { static void* f() { return nullptr; }\n"
       "static int g() __attribute__((ifunc(\"f\"))); }",
       "return g()", "an ifunc"},
      {"[[gnu::section(\".mine\"), gnu::used]] static const int a = 3;", "", "the section .mine"},
      // The name of a sanitizer changes nothing.
      {in + "static const int a = " + print +
           "\nextern \"C\" { [[gnu::used]] static void __asan_x() {} }",
       "", rule},
  });
}

TEST_CASE("a file that the compiler read without being a header of the exercise is found",
          "[exercises]") {
  const auto foreign = [&](const std::string& dependencies) {
    return foreign_header(dependencies, ZEROLAB_SOURCE_DIR "/stages", {"tensor/kernels.h"},
                          ZEROLAB_SOURCE_DIR);
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
  check_files({
      {"double helper(double x) { return x; }", "", "it defines helper(double)"},
      {"int main() {}", "", "it defines main"},
      {"#include <cstddef>\nvoid* operator new(size_t) { return nullptr; }", "",
       "it replaces operator new"},
      {"#include \"tutorials/exercises/grader/measure.h\"\nzl::exercises::Record "
       "zl::exercises::measure(const std::string&, const CheckOptions&) { return {}; }",
       "", "it defines zl::exercises::measure"},
      {"extern \"C\" long write(int, const void*, unsigned long) { return 0; }", "",
       "it defines write"},
      // An inline function of the same name as one of a header replaces it in the whole program.
      {"namespace zl::exercises { inline double judge(double x) { return x; } }",
       "double (*volatile f)(double) = judge; return f(x)", "it defines zl::exercises::judge"},
      {"namespace zl::exercises { template <class T> T judge(T x) { return x; } }",
       "double (*volatile f)(double) = judge<double>; return f(x)",
       "it defines double zl::exercises::judge<double>"},
      // Inline functions of headers are in the object too.
      {"#include \"tensor/error.h\"\n#include \"tensor/shape.h\"",
       "double (*volatile f)(double) = zl::exercises::answer; "
       "return f(x) + double((std::to_string(x) + zl::str(zl::in_words({3}))).size())",
       ""},
      {"namespace { double helper(double x) { return x; } template <class T> T same(T t) { "
       "return t; } struct Both { virtual ~Both() = default; virtual double f() = 0; }; "
       "struct One : Both { double f() override { return helper(same(3.)); } }; }",
       "return One().f()", ""},
  });
  // A class that others see is refused in one line.
  CHECK(violations({"namespace zl { struct A { virtual ~A() {} virtual int f() { return 1; } }; }",
                    "zl::A a; zl::A* volatile p = &a; return p->f()", ""}) ==
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
