// What the grader makes of a file, on the tests' own small exercise.
#include "tutorials/exercises/grader/grade.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "stages/train/trainer.h"
#include "tensor/error.h"
#include "tests/exercises/grading.h"
#include "tests/zerolab/process.h"

namespace zl::exercises {
namespace {

const std::string kRight =
    probe_file("namespace zl::exercises { double answer(double x) { return 2 * x; } }\n");

std::string failing(const std::string& statement) {
  return probe_file(
      "#include <cstdio>\n#include <stdexcept>\n#include <string>\n#include <vector>\n"
      "namespace zl::exercises { double answer(double x) { " +
      statement + " } }\n");
}

// A right file in this check alone.
Grade in_check(const std::string& check) {
  Exercise exercise = probe();
  exercise.checks = {{check, "first", 100}};
  return grade_text(exercise, kRight);
}

}  // namespace

TEST_CASE("a right file gets all points", "[exercises]") {
  const Grade grade = grade_text(probe(), kRight);
  CAPTURE(grade.refused, diagnosis(grade));
  CHECK(grade.passed());
  CHECK(grade.points() == 100);
  CHECK(grade.most_points() == 100);
  CHECK(grade.results.size() == 4);
  CHECK(grade.build_seconds > 0);
}

TEST_CASE("a failed check of the first group skips all others", "[exercises]") {
  const Grade grade = grade_text(probe(), failing("return x + 1;"));
  CHECK(first_failure(grade) == "answer");
  CHECK(diagnosis(grade) == "not twice x");
  CHECK(grade.points() == 0);
  CHECK(grade.most_points() == 100);
  for (size_t k = 1; k < grade.results.size(); ++k)
    CHECK(grade.results[k].outcome == Outcome::skipped);
}

TEST_CASE("a failed check of a later group skips the rest of its group only", "[exercises]") {
  Exercise exercise = probe();
  exercise.checks = {{"answer", "first", 40},
                     {"ends", "second", 20},
                     {"threads", "second", 20},
                     {"errors", "third", 10},
                     {"heap", "third", 10}};
  std::vector<std::string> reported;
  GradeOptions options;
  options.on_check = [&](const Check& check) { reported.push_back(check.name); };
  Grade grade = grade_text(exercise, kRight, options);
  CHECK(grade.points() == 60);
  CHECK_FALSE(grade.passed());
  CHECK(reported == std::vector<std::string>{"answer", "ends", "errors", "heap"});
  CHECK(grade.results[2].outcome == Outcome::skipped);
  options.stop_at_first_failure = true;
  grade = grade_text(exercise, kRight, options);
  CHECK(grade.points() == 40);
  CHECK(grade.results[3].outcome == Outcome::skipped);
}

TEST_CASE("a process that ends without a record gets a verdict in words", "[exercises]") {
  const auto said = [](const std::string& check) {
    const Grade grade = in_check(check);
    CHECK(grade.points() == 0);
    return diagnosis(grade);
  };
  const std::string early = "the program ended before the check was over (exit code 0)";
  CHECK(said("ends") == early);
  CHECK(said("sends something else") == early);
  CHECK(said("sends a record") == early);
  CHECK(said("prints") == "the program printed more than 1 MiB and was stopped");
  CHECK(cli::contains(said("loops"), "the check ran longer than "));
}

TEST_CASE("what a student's code throws is the verdict", "[exercises]") {
  const auto verdict = [](const std::string& statement) {
    const Grade grade = grade_text(probe(), failing(statement));
    CAPTURE(grade.refused);
    REQUIRE(grade.results.size() == 4);
    return grade.results[0].verdict;
  };
  CHECK(verdict("throw std::logic_error(\"not written yet: answer(x)\");").meaning ==
        "not written yet: answer(x)");
  CHECK(verdict("throw std::runtime_error(\"x is \" + std::to_string(x));").meaning ==
        "the code threw an exception: x is 21.000000");
  CHECK(verdict("throw std::runtime_error(std::string(60 << 20, 'z'));").meaning.size() < 9000);
  CHECK(verdict("throw 1;").meaning ==
        "the code threw an exception: an object that is no std::exception was thrown");
}

TEST_CASE("what a student's code prints is kept with the check", "[exercises]") {
  const Grade grade =
      grade_text(probe(), failing("std::fprintf(stderr, \"x = %g\\n\", x); return 2 * x;"));
  CHECK(grade.results[0].output == "x = 21\n");
  CHECK(grade.results[1].output.size() == 3 * 6);  // of three threads
}

// Sanitizers report crashes and large allocations themselves.
TEST_CASE("a crash is named by its signal", "[exercises][unsanitized]") {
  CHECK(diagnosis(in_check("divides by zero")) == "the program crashed (SIGFPE)");
  const Grade printed = in_check("crashes after printing");
  CHECK(diagnosis(printed) == "the program crashed (SIGSEGV)");
  CHECK(printed.results[0].output == "x = 1\n");
  CHECK(diagnosis(grade_text(probe(), failing("return std::vector<double>(1ul << 40)[1];"))) ==
        "out of memory");
}

TEST_CASE("a judge that cannot read a record fails the check", "[exercises]") {
  Exercise exercise = probe();
  exercise.judge = [](const Check&, const CheckOptions&, const Record& record) -> Verdict {
    return {.passed = record.numbers.at("no such number").empty()};
  };
  const Grade grade = grade_text(exercise, kRight);
  CHECK(diagnosis(grade) == "the check measured something else than it should");
  CHECK(grade.points() == 0);
}

TEST_CASE("a file that does not compile is refused with the compiler's first errors",
          "[exercises]") {
  std::string many = "int x = y0;\n";
  for (int k = 1; k < 70; ++k) many += "int x" + std::to_string(k) + " = y;\n";
  const cli::ScratchFolder folder;
  const std::string file = cli::write_file(folder / "mine.cpp", probe_file(many));
  const Grade grade = zl::exercises::grade(probe(), file, toolchain(), {});
  CHECK(grade.refused.starts_with("it does not compile\n" + file + ":2:9: error: "));
  CHECK(cli::lines(grade.refused).size() < 50);
  CHECK(grade.results.empty());
  CHECK_FALSE(grade.passed());
  CHECK(grade.points() == 0);
  CHECK(grade.most_points() == 100);
  CHECK(cli::contains(grade_text(probe(), probe_file("")).refused,
                      "the function of the task is missing"));
  CHECK(cli::contains(
      grade_text(probe(), failing("const double y = x; (double&)y = 1; return 2 * y;")).refused,
      "qualifiers"));
  const Grade warned = grade_text(probe(), failing("int unused; return 2 * x;"));
  CHECK(cli::contains(warned.warnings, "unused"));
  CHECK(warned.passed());
}

TEST_CASE("a file that the compiler cannot make an object of is refused quickly", "[exercises]") {
  CHECK(cli::contains(grade_text(probe(), failing("static const char z[1 << 30] = {}; volatile "
                                                  "const char* p = z; return p[int(x)];"))
                          .refused,
                      "a constant or a template is too large"));
  // Its name is some hundred letters, and megabytes when demangled.
  std::string types = "#include <utility>\n#include <vector>\nnamespace { using T0 = int;\n";
  for (int k = 1; k < 19; ++k) {
    const std::string before = "T" + std::to_string(k - 1) + "*";
    types += "using T" + std::to_string(k) + " = std::pair<" + before + ", " + before + ">;\n";
  }
  types +=
      "}\ndouble zl::exercises::answer(double x) { using V = std::vector<T18>; void "
      "(V::*volatile f)(std::size_t) = &V::reserve; return f ? x : 0; }\n";
  const Grade endless = grade_text(probe(), probe_file(types));
  CAPTURE(endless.refused, diagnosis(endless));
  CHECK(cli::contains(endless.refused, "names of its types and functions are too long"));
}

// As if the rules of the source had a hole.
TEST_CASE("a file with a header that is not the exercise's is refused, and not quoted",
          "[exercises]") {
  const cli::ScratchFolder folder;
  const std::string secret = cli::write_file(folder / "secret.h", "int secret = none;\n");
  Toolchain other = toolchain();
  const auto refused = [&](const std::string& text) {
    return grade(probe(), cli::write_file(folder / "answer.cpp", text), other, {}).refused;
  };
  CHECK(refused(kRight) == "");
  for (const std::string& header : {secret, std::string("tensor/shape.h")}) {
    other.flags = toolchain().flags;
    other.flags.insert(other.flags.end(), {"-include", header});
    CHECK(cli::contains(refused(kRight), "it includes "));
    CHECK_FALSE(cli::contains(refused(kRight), "secret = none"));
  }
}

TEST_CASE("headers beside a student's file are not included", "[exercises]") {
  const cli::ScratchFolder folder;
  std::filesystem::create_directories(folder / "tests/exercises/probe");
  cli::write_file(folder / "tests/exercises/probe/answer.h", "#error of the student\n");
  const std::string file = cli::write_file(folder / "answer.cpp", kRight);
  CHECK(grade(probe(), file, toolchain(), {}).passed());
}

TEST_CASE("a file that cannot be read is an error of the command", "[exercises]") {
  const cli::ScratchFolder folder;
  CHECK_THROWS_AS(grade(probe(), folder / "none.cpp", toolchain(), {}), InputError);
  CHECK_THROWS_AS(grade(probe(), folder.path(), toolchain(), {}), InputError);
  const std::string pipe = folder / "pipe.cpp";  // it would wait for a writer
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(grade(probe(), pipe, toolchain(), {}),
                    Catch::Matchers::ContainsSubstring("is no file"));
  const std::string large = cli::write_file(folder / "large.cpp", std::string(2 << 20, '\n'));
  CHECK_THROWS_AS(grade(probe(), large, toolchain(), {}), InputError);
  Toolchain without = toolchain();
  without.launcher = {};
  without.compiler = "no-such-compiler";
  const std::string file = cli::write_file(folder / "answer.cpp", kRight);
  CHECK_THROWS_AS(grade(probe(), file, without, {}), InputError);
}

TEST_CASE("grading leaves no folder behind, also after an interruption", "[exercises]") {
  const cli::ScratchFolder folder;
  const char* before = std::getenv("TMPDIR");
  const std::string was = before ? before : "";
  setenv("TMPDIR", folder.path().c_str(), 1);
  CHECK(grade_text(probe(), kRight).passed());
  int asked = 0;
  GradeOptions options;
  options.interrupted = [&] { return ++asked > 3; };
  CHECK_THROWS_AS(grade_text(probe(), kRight, options), Interrupted);
  if (before)
    setenv("TMPDIR", was.c_str(), 1);
  else
    unsetenv("TMPDIR");
  CHECK(cli::files_in(folder.path()).empty());
}

TEST_CASE("each student has a seed, and the public one does not change", "[exercises]") {
  CHECK(seed_of("") == seed_of(""));
  CHECK(seed_of("") != 0);
  CHECK(seed_of("anna") != seed_of("annb"));
  CHECK(seed_of("anna") != seed_of(""));
  CHECK(seed_of("anna") == 0x48dad83b80b9ad24);
}

TEST_CASE("an exercise is found by its number or name", "[exercises]") {
  for (const char* which : {"5", "05", "05_zero1"}) CHECK(find_exercise(which).number == 5);
  CHECK_THROWS_WITH(find_exercise("05_zero"),
                    Catch::Matchers::ContainsSubstring("did you mean '05_zero1'?"));
  for (const char* which : {"", "0", "99", "005", "five", "5x"})
    CHECK_THROWS_AS(find_exercise(which), InputError);
}

TEST_CASE("the toolchain is read from its file", "[exercises]") {
  const cli::ScratchFolder folder;
  const auto read = [&](const std::string& text) {
    return read_toolchain(cli::write_file(folder / "exercises.json", text));
  };
  const Toolchain one = read(R"({"compiler": "g++", "launcher": [""], "flags": ["-I{here}/x", ""],
      "link": ["{here}/lib{exercise}.a"], "exercises": "{here}/../texts", "source": ""})");
  CHECK(one.launcher.empty());
  CHECK(one.flags == std::vector<std::string>{"-I" + folder.path() + "/x"});
  CHECK(one.link == std::vector<std::string>{folder.path() + "/lib{exercise}.a"});
  CHECK(one.exercises == std::filesystem::path(folder.path()).parent_path().string() + "/texts");
  CHECK_THROWS_AS(read("{}"), InputError);
  CHECK_THROWS_AS(read("text"), InputError);
  CHECK_THROWS_AS(read_toolchain(folder / "none.json"), InputError);
}

TEST_CASE("a record keeps its numbers and texts, and a damaged one is noticed", "[exercises]") {
  Record record;
  record.numbers["a"] = {1, -0.0, std::numeric_limits<double>::infinity(), 9007199254740991};
  record.numbers["none"] = {};
  record.texts["b"] = std::string("x\0y", 3);
  const uint64_t key = 0x0123456789abcdef;
  const std::string bytes = encode(record, key);
  const Record same = decode_record(bytes, key);
  CHECK(same.numbers == record.numbers);
  CHECK(std::signbit(same.numbers.at("a")[1]));
  CHECK(same.texts == record.texts);
  CHECK(encode(same, key) == bytes);
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(decode_record(bytes.substr(0, size), key), InputError);
  CHECK_THROWS_AS(decode_record(bytes + "x", key), InputError);
  CHECK_THROWS_AS(decode_record(bytes, key + 1), InputError);
  std::string other = bytes;
  other[0] = 'x';
  CHECK_THROWS_AS(decode_record(other, key), InputError);
  other = bytes;
  other[15] = '\x7f';  // more values than there are bytes
  CHECK_THROWS_AS(decode_record(other, key), InputError);
}

}  // namespace zl::exercises
