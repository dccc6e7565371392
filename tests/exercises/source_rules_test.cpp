// What a student's file may contain: each rule refuses one text, and lets a similar one pass.
#include "tutorials/exercises/grader/rules/source_rules.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/exercises/grading.h"
#include "tests/paths.h"
#include "tests/zerolab/process.h"
#include "tutorials/exercises/grader/rules/cpp_tokens.h"

namespace zl::exercises {
namespace {

const Exercise kExercise = {.headers = {"stages/stage.h", "tensor/kernels.h"}};

std::string violations(const std::string& text) { return source_violations(kExercise, text); }

// It must be refused in that line, with that word in the message.
void refused(const std::string& text, int line, const std::string& part) {
  const std::string found = violations(text);
  INFO(text << "\n-> " << found);
  CHECK(found.starts_with("line " + std::to_string(line) + ": "));
  CHECK(found.find('\n') == found.npos);
  CHECK(cli::contains(found, part));
}

void passes(const std::string& text) {
  const std::string found = violations(text);
  INFO(text << "\n-> " << found);
  CHECK(found.empty());
}

}  // namespace

TEST_CASE("a student's file may include some headers of C++ and those of the exercise",
          "[exercises]") {
  passes("#include <vector>\n  # include  <cstdio>  // prints\n#include \"stages/stage.h\"\n");
  passes("#pragma once\n#include /* two\nlines */ <map>\n");
  refused("\n#include <fstream>\n", 2, "std::fprintf");
  refused("#include <thread>\n", 1, "<thread> is not among the headers");
  refused("#include <ctime>\n", 1, "not among");
  refused("#include \"stages/zero1.cpp\"\n", 1, "\"stages/stage.h\", \"tensor/kernels.h\"");
  refused("#include <stages/stage.h>\n", 1, "not among");
  refused("#include \"../stages/stage.h\"\n", 1, "not among");
  refused("#include HEADER\n", 1, "#include HEADER");
}

TEST_CASE("a student's file has no other preprocessor lines", "[exercises]") {
  refused("#define private public\n", 1, "constexpr");
  refused("int a;\n#if 1\n", 2, "'#if 1'");
  refused("/* x */ #undef a\n", 1, "#undef");
  refused("/*\n*/#line 7\n", 2, "#line");
  refused("#pragma GCC optimize(0)\n", 1, "#pragma");
  refused("#pragma once once\n", 1, "#pragma");
  refused("#include_next <vector>\n", 1, "#include_next");
  refused("#\n", 1, "'#'");
  refused("%:define x\n", 1, "digraph");
  refused("int a; # define x\n", 1, "middle of a line");
  passes("const char* text = \"#define x\";  // #define x\n");
  passes("int a = b %c; std::vector<::zl::Unit> units;\n");
  passes("const char* text = R\"(\n#define x\n)\";\n");
}

TEST_CASE("a student's file uses no words that go around the types of C++", "[exercises]") {
  for (const std::string word :
       {"asm", "const_cast", "reinterpret_cast", "extern", "thread_local", "__asm__",
        "__attribute__", "__builtin_trap", "_Pragma", "_Exit"}) {
    refused("int a;\nauto x = " + word + " y;\n", 2, "'" + word + "'");
    passes("// " + word + "\n/* " + word + " */ const char* a = \"" + word + "\";\n");
    passes("int my_" + word + " = 1;\n");
  }
  passes("std::fprintf(stderr, \"%s %d\", __func__, __LINE__);\n");
  refused("int main() {}\n", 1, "main");
  passes("int main_part = 1;\n");
  refused("namespace std { }\n", 1, "anonymous");
  refused("template <> int zl::f<int>();\n", 1, "specialisation");
  refused("template struct Thief<&zl::Memory::live>;\n", 1, "instantiation");
  refused("template <class A> struct std::vector<float, A> {};\n", 1, "of std");
  passes("template <class T> T f(T x) { return x.template g<int>(); }\n");
  passes("struct A : B {};\n");
}

TEST_CASE("a student's file does not touch what the checks measure with", "[exercises]") {
  refused("comm().log() = {};\n", 1, "'log' of a class");
  refused("auto& all = comm->log();\n", 1, "'log' of a class");
  refused("auto f = &zl::Communicator::log;\n", 1, "'log' of a class");
  refused("memory().ledger().reset_peak();\n", 1, "'ledger' of a class");
  refused("ledger() = {};\n", 1, "'ledger' of a class");
  refused("return ledger(b...);\n", 1, "'ledger' of a class");
  refused("int ledger = 0;\n", 1, "give it another name");
  refused("using std = zl::Memory;\n", 1, "'std'");
  refused("typedef zl::Memory std;\n", 1, "'std'");
  refused("template <class std> struct A;\n", 1, "of std");
  refused("auto p = &zl::Memory::live_;\n", 1, "'live_'");
  passes("using std::vector; using namespace std; std::vector<int> a_; b.a_ = ::std::move(c);\n");
  refused("stdout->_x = 3;\n", 1, "'stdout'");
  refused("void f(T* x) { x->_fileno = 3; }\n", 1, "'_fileno'");
  refused("auto& file = *stderr;\n", 1, "'stderr'");
  refused("auto file = stderr;\n", 1, "'stderr'");
  passes("std::fprintf(stderr, \"x\"); std::fputs(\"x\", stdout); mine->_count = 1;\n");
  refused("memory().backend().allocate(9);\n", 1, "'backend' of a class");
  refused("comm().all_gather_object(text, \"x\");\n", 1, "'all_gather_object' of a class");
  refused("struct M : Memory { auto& f() { return (events)(); } };\n", 1, "'events'");
  refused("struct C : Communicator { auto& f() { return (log)(); } };\n", 1, "'log'");
  passes("double a = std::log(b) + log(c);\n");
}

TEST_CASE("a student's file has only attributes of C++", "[exercises]") {
  passes("[[nodiscard]] int f([[maybe_unused]] int a);\n");
  refused("[[gnu::constructor]] void f();\n", 1, "[[gnu]]");
  refused("[ [using gnu: constructor]] void f();\n", 1, "[[using]]");
  passes("int a = values[index[0]];\n");
  CHECK_FALSE(violations("<:<:gnu::constructor:>:> void f();\n").empty());
}

TEST_CASE("code that looks like a string or a comment is found", "[exercises]") {
  refused("char a = '\"'; asm(\"nop\"); char b = '\"';\n", 1, "asm");
  refused("auto f() { return'\"'; } asm(\"nop\"); //\"\n", 1, "asm");
  refused("int a = 1'000; asm(\"\"); int b = 1'000;\n", 1, "asm");
  refused("auto a = u8R\"x(\" )\" )x\"; asm(\"\");\n", 1, "asm");
  refused("auto a = \"\"R\"(\"; asm(\"\"); //)\"\n", 1, "asm");
  refused("auto a = XR\"(\"; asm(\"\"); //)\"\n", 1, "asm");
  refused("auto a = \"\\\\\"; asm(\"\");\n", 1, "asm");
  refused("/* // */ asm(\"\");\n", 1, "asm");
  refused("// comment \\\nint a;\n", 1, "backslash at the end");
  CHECK_FALSE(violations("as\\\nm(\"\");\n").empty());
  refused("int \\u0061;\n", 1, "backslash outside");
  refused(std::string("int a;\0\n", 8), 1, "byte 0");
  passes("auto a = \"line\\n\"; // ends with a \\ here\n");
}

// Where the rules and the compiler cut a text into different tokens, code can hide.
TEST_CASE("a text that a compiler may read in another way is refused", "[exercises]") {
  for (const char c : {'\f', '\v', '\b', '\x1a', '\x1b', '\x7f'}) {
    const std::string byte = "byte " + std::to_string(int(c));
    refused(std::string("\"\\") + c + "\n R\"/*(\n*/; asm(1);\n// )/*\"\n", 1, byte);
    refused(std::string("// a comment ") + c + "\n", 1, byte);
  }
  refused("int a;\rint b;\n", 1, "byte 13");
  passes("int a;\r\nint b;\r\n\tint c;");
  refused("int a = \"x\"_$R\"(\";\n#include \"stages/zero1.cpp\"\n// )\"\n", 1, "'$'");
  refused("int a = x @ y;\n", 1, "'@'");
  refused("int \xc3\xa4 = 1;\n", 1, "letters of ASCII");
  refused("auto a = \"x\"_\xc3\xa4;\n", 1, "letters of ASCII");
  passes("auto a = \"\xc3\xa4\";  // \xc3\xa4\n");
  refused("auto a = \"x;\nint b;\n", 1, "not closed");
  refused("auto a = 'x;\nint b;\n", 1, "not closed");
  refused("auto a = R\"x(;\nint b;\n", 1, "not closed");
  refused("int a; /* int b;\n", 1, "not closed");
  refused("#include \"" + std::string(400000, 'a') + "\"\n", 1, "'#include \"aaa");
}

TEST_CASE("brackets of a student's file have a depth that a compiler can follow", "[exercises]") {
  const auto nested = [](size_t n) {
    return "int a = " + std::string(n, '(') + "1" + std::string(n, ')') + ";\n";
  };
  passes(nested(200));
  refused(nested(201), 1, "more than 200 brackets");
  refused(nested(100000), 1, "more than 200 brackets");
}

TEST_CASE("a student's file has at most 80 lines of code", "[exercises]") {
  std::string text = "/* a comment\n\n   of three lines */\n";
  for (int k = 1; k < 80; ++k) text += "int a" + std::to_string(k) + ";  // code\n// none\n\n";
  passes(text + "int last;\n");
  refused(text + "int last;\nint more; int still_more;\n", 242, "81 lines of code");
}

TEST_CASE("every violation of a file is listed in the order of its lines", "[exercises]") {
  CHECK(violations("extern int a;\n#define b\nasm(\"\");\n") ==
        "line 1: 'extern': include the header that declares a function instead\n"
        "line 2: '#define b': the only lines with # are #include <…> and #include \"…\". For a "
        "constant write: constexpr int name = 3;\n"
        "line 3: 'asm': no assembler");
}

TEST_CASE("a file is cut into tokens as a compiler does it", "[exercises]") {
  std::string words;
  for (const Token& token : tokens_of("a1 .5e-3f 'x' 0x1'F \"s\"_u b->c // d\n#include <e>\n"))
    words += std::to_string(int(token.kind)) + token.text + std::to_string(token.line) + " ";
  CHECK(words == "0a11 1.5e-3f1 21 10x1'F1 21 0b1 3-1 3>1 0c1 4#include <e>2 ");
}

TEST_CASE("the stage files of the library keep the rules of the exercises", "[exercises]") {
  for (const char* name : {"ddp", "zero1", "zero2", "zero3"})
    passes(cli::read_file(std::string(ZEROLAB_SOURCE_DIR "/stages/") + name + ".cpp"));
}

}  // namespace zl::exercises
