// What the grader makes of a file, whatever is in it.
#include "tutorials/exercises/grader/grade.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "stages/train/trainer.h"
#include "tests/exercises/grading.h"
#include "tests/zerolab/process.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {
namespace {

using Catch::Matchers::ContainsSubstring;
using cli::contains;

// Exercise 01 with a solution that begins with `statements`.
std::string solution(const std::string& statements, const std::string& before = "") {
  std::string text = cli::read_file(ZEROLAB_SOURCE_DIR "/tests/exercises/right/01_rms_norm.cpp");
  const std::string begin = "const Tensor &in = x.value(), &w = weight.value();";
  text.insert(text.find(begin), statements + "\n");
  return before + text;
}

Grade graded(const std::string& text, GradeOptions options = {}) {
  const cli::ScratchFolder folder;
  if (options.seed == 0) options.seed = seed_of("");
  return grade(find_exercise("01", toolchain()), cli::write_file(folder / "mine.cpp", text),
               toolchain(), options);
}

// What is said of a file that does this in its function.
std::string said(const std::string& statements, const std::string& before = "") {
  GradeOptions options;
  options.stop_at_first_failure = true;
  const Grade grade = graded(solution(statements, before), options);
  CHECK(grade.points() == 0);
  return diagnosis(grade);
}

}  // namespace

// Sanitizers report crashes and large allocations themselves.
TEST_CASE("each way in which a program can end gets a verdict in words",
          "[exercises][unsanitized]") {
  struct Row {
    const char *statements, *includes, *says;
  };
  const Row rows[] = {
      {"_exit(0);", "#include <unistd.h>\n", "ended before the check was over (exit code 0)"},
      {"if (write(3, \"PASS\", 4)) _exit(0);", "#include <unistd.h>\n", "more than one process"},
      {"if (fork() > 0) wait(nullptr);", "#include <sys/wait.h>\n#include <unistd.h>\n",
       "more than one process wrote its observations"},
      {"close(3);", "#include <unistd.h>\n", "closed file descriptor 3"},
      {"_exit(4);", "#include <unistd.h>\n", "ended before the check was over (exit code 4)"},
      {"std::exit(7);", "#include <cstdlib>\n", "ended before the check was over (exit code 7)"},
      {"volatile int zero = 0; zero = 7 / zero;", "", "crashed (SIGFPE)"},
      {"*(volatile int*)(8) = 1;", "", "crashed (SIGSEGV)"},
      {"raise(SIGRTMIN + 1);", "#include <signal.h>\n", "was killed (signal 35)"},
      {"std::terminate();", "#include <exception>\n", "aborted (SIGABRT)"},
      {"(void)std::vector<double>(1ul << 40)[1];", "#include <vector>\n", "out of memory"},
      {"for (const std::string line(1 << 16, 'x');;) std::puts(line.c_str());",
       "#include <cstdio>\n#include <string>\n", "wrote more than 64 MiB"},
      {"throw 1;", "", "an object that is no std::exception was thrown"},
      {"throw std::runtime_error(\"x is 21\");", "#include <stdexcept>\n",
       "the code threw an exception: x is 21"},
      {"throw std::logic_error(\"not written yet: f\");", "#include <stdexcept>\n",
       "not written yet: f"}};
  for (const Row& row : rows) {
    CAPTURE(row.statements);
    CHECK_THAT(said(row.statements, row.includes), ContainsSubstring(row.says));
  }
  CHECK(said("throw std::runtime_error(std::string(60 << 20, 'z'));",
             "#include <stdexcept>\n#include <string>\n")
            .size() < 9000);
}

// A process that outlives its parent, also in another session, would hold this file open.
TEST_CASE("a program that loops, forks and hides leaves nothing behind", "[exercises]") {
  const cli::ScratchFolder folder;
  const std::string pipe = folder / "alive";
  REQUIRE(mkfifo(pipe.c_str(), 0666) == 0);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(pipe, std::filesystem::perms(0666));
  const auto begin = std::chrono::steady_clock::now();
  GradeOptions options;
  options.stop_at_first_failure = true;
  // Once in each process: the first check passes beside its bomb, the second does not end.
  const Grade grade = graded(
      solution("static const int again = mkdir(\"" + folder / "first" +
                   "\", 0777), reader = open(\"" + pipe +
                   "\", O_RDWR), child = fork(); (void)reader;" +
                   "if (child == 0) { setsid(); if (fork() == 0) for (;;) fork(); for (;;) {} }"
                   "if (again != 0) for (;;) {}",
               "#include <fcntl.h>\n#include <sys/stat.h>\n#include <unistd.h>\n"),
      options);
  CHECK(grade.results.at(0).outcome == Outcome::passed);
  CHECK_THAT(diagnosis(grade), ContainsSubstring("ran longer than 10 s"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  const int writer = open(pipe.c_str(), O_WRONLY | O_NONBLOCK);  // fails where nothing reads
  CHECK(writer < 0);
  if (writer >= 0) close(writer);
}

TEST_CASE("a failed check skips the rest of its group, and one of the first group all others",
          "[exercises]") {
  const Grade first = graded(solution("throw 1;"));
  REQUIRE(first.results.size() == 13);
  for (size_t k = 1; k < first.results.size(); ++k)
    CHECK(first.results[k].outcome == Outcome::skipped);
  std::string text = solution("std::puts(\"called\");", "#include <cstdio>\n");
  const std::string adds = "if (slot.write == Write::set) kernel::fill(0, slot.tensor);";
  const Grade later =
      graded(text.replace(text.find(adds), adds.size(), "kernel::fill(0, slot.tensor);"));
  CHECK(first_failure(later) == "gradient of weight");
  CHECK(later.points() == 25 + 5 + 5 + 10);
  CHECK(contains(later.results[3].output, "called\n"));
  CHECK(later.results[4].outcome == Outcome::skipped);
}

TEST_CASE("a file that does not compile or link is refused with the first errors", "[exercises]") {
  std::string many = "int x = y0;\n";
  for (int k = 1; k < 70; ++k) many += "int x" + std::to_string(k) + " = y;\n";
  const Grade grade = graded(many);
  CHECK_THAT(grade.refused, ContainsSubstring("mine.cpp:1:9: error: "));
  CHECK(cli::lines(grade.refused).size() < 50);
  CHECK((grade.results.empty() && grade.points() == 0));
  CHECK_THAT(graded("").refused, ContainsSubstring("a function of the contract is missing"));
  CHECK_THAT(graded(solution("static const char z[1 << 30] = {1}; volatile const char* p = z; "
                             "(void)p[eps > 1];"))
                 .refused,
             ContainsSubstring("a constant or a template is too large"));
  CHECK_THAT(graded(solution("", R"(#include "tutorials/exercises/judge/measure.h"
      namespace zl::exercises {
      Record run_on_ranks(int, const std::function<void(Communicator&, Record&)>&) { return {}; }
      })"))
                 .refused,
             ContainsSubstring("unnamed namespace"));
  const Grade warned = graded(solution("int unused;"));
  CHECK_THAT(warned.warnings, ContainsSubstring("unused"));
  CHECK(warned.passed());
}

TEST_CASE("headers beside a student's file are not included", "[exercises]") {
  const cli::ScratchFolder folder;
  std::filesystem::create_directories(folder / "tensor");
  cli::write_file(folder / "tensor/kernels.h", "#error of the student\n");
  const std::string file = cli::write_file(folder / "mine.cpp", solution(""));
  CHECK(grade(find_exercise("01", toolchain()), file, toolchain(), {.seed = 1}).passed());
}

TEST_CASE("a file that cannot be read is an error of the command", "[exercises]") {
  const cli::ScratchFolder folder;
  const Exercise exercise = find_exercise("01", toolchain());
  const std::string pipe = folder / "pipe.cpp",  // it would wait for a writer
      large = cli::write_file(folder / "large.cpp", std::string(2 << 20, '\n'));
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& file : {folder / "none.cpp", folder.path(), pipe, large})
    CHECK_THROWS_AS(grade(exercise, file, toolchain(), {}), UnreadableFile);
  Toolchain without = toolchain();
  without.launcher = {};
  without.compiler = "no-such-compiler";
  const std::string file = cli::write_file(folder / "mine.cpp", solution(""));
  CHECK_THROWS_WITH(grade(exercise, file, without, {}), ContainsSubstring("cannot be started"));
}

TEST_CASE("a main() in the file is not called", "[exercises]") {
  CHECK(graded(solution("") + "\nint main() { return 7; }\n").passed());
}

TEST_CASE("what a program writes where it runs, and to TMPDIR, goes with it", "[exercises]") {
  const cli::ScratchFolder folder;
  GradeOptions options;
  options.stop_at_first_failure = true;
  const Grade grade =
      graded(solution("if (FILE* f = std::fopen(\"mine.txt\", \"wx\")) std::fclose(f);"
                      "else throw std::runtime_error(\"there already\");"
                      "throw std::runtime_error(std::string(std::getenv(\"TMPDIR\")) + \" \" + "
                      "std::filesystem::current_path().string() + \".\");",
                      "#include <cstdio>\n#include <cstdlib>\n#include <filesystem>\n"
                      "#include <stdexcept>\n"),
             options);
  const std::string meaning = diagnosis(grade), begin = "the code threw an exception: ";
  REQUIRE(meaning.starts_with(begin + "/"));
  const std::string place =
      meaning.substr(begin.size(), meaning.find(' ', begin.size()) - begin.size());
  CHECK(meaning == begin + place + " " + place + ".");
  CHECK_FALSE(std::filesystem::exists(place));
}

TEST_CASE("a judge that does not judge is an error, or a failed check if it was killed",
          "[exercises]") {
  const cli::ScratchFolder folder;
  const Exercise exercise = find_exercise("01", toolchain());
  const std::string file = cli::write_file(folder / "mine.cpp", solution(""));
  Toolchain other = toolchain();
  const auto with = [&](const std::string& script) -> const Toolchain& {
    other.judge = cli::write_file(folder / "judge", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(other.judge, std::filesystem::perms(0755));
    return other;
  };
  const Grade killed = grade(exercise, file, with("kill -9 $$"), {});
  CHECK(killed.points() == 0);
  CHECK_THAT(diagnosis(killed), ContainsSubstring("the judge was killed"));
  const GradeOptions first{.stop_at_first_failure = true};
  CHECK_THROWS_WITH(grade(exercise, file, with("echo '{}'; echo 'no process' >&2; exit 3"), first),
                    ContainsSubstring("no process"));
  // Neither passed, failed nor skipped.
  const Grade unknown =
      grade(exercise, file,
            with(R"(echo '{"check": "no tape", "outcome": "errored", "meaning": "", "details": "",)"
                 R"( "output": "", "event": 0, "seconds": 0, "costs": []}')"),
            first);
  CHECK(unknown.points() == 0);
  for (const char* script : {"echo no library; exit 127", "echo no library"})
    CHECK_THROWS_WITH(all_exercises(with(script)), ContainsSubstring("no library"));
}

TEST_CASE("what a check did not measure is an error", "[exercises]") {
  Record record;
  record.put("empty", Values());
  record.put_rows("rows", std::vector<int>());
  CHECK((record.list("empty").empty() && record.rows<int>("rows").empty()));
  CHECK_THROWS_AS(record.list("rows"), InputError);
  CHECK_THROWS_AS(record.of("empty", 0), InputError);
  CHECK_THROWS_AS(record.rows<int>("empty"), InputError);
}

TEST_CASE("grading leaves no folder behind, also after an interruption", "[exercises]") {
  const cli::ScratchFolder folder, other;
  // The student's program runs as another user where the tests run as root.
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0711});
  const std::string file = cli::write_file(other / "mine.cpp", solution("for (;;) {}"));
  const char* before = std::getenv("TMPDIR");
  const std::string was = before ? before : "/tmp";
  setenv("TMPDIR", folder.path().c_str(), 1);
  GradeOptions options;
  // While a check runs it has a folder in that of the grading.
  const std::string judged = "ls -d '" + folder.path() + "'/zerolab-exercise-*/zerolab-exercise-*";
  options.interrupted = [&] { return cli::shell(judged).code == 0; };
  CHECK_THROWS_AS(grade(find_exercise("01", toolchain()), file, toolchain(), options), Interrupted);
  setenv("TMPDIR", was.c_str(), 1);
  CHECK(cli::files_in(folder.path()) == std::vector<std::string>{});
}

TEST_CASE("each student has a seed, and without a student each run another one", "[exercises]") {
  CHECK(seed_of("") != seed_of(""));
  CHECK(seed_of("anna") != seed_of("annb"));
  CHECK(seed_of("anna") == 0x48dad83b80b9ad24);
}

TEST_CASE("an exercise is found by its number or name, and has 100 points", "[exercises]") {
  for (const char* which : {"5", "05", "05_zero1"})
    CHECK(find_exercise(which, toolchain()).number == 5);
  CHECK_THROWS_WITH(find_exercise("05_zero", toolchain()),
                    ContainsSubstring("did you mean '05_zero1'?"));
  for (const char* which : {"", "0", "99", "005", "five", "5x"})
    CHECK_THROWS_AS(find_exercise(which, toolchain()), InputError);
  for (const Exercise& exercise : exercises()) {
    int points = 0;
    for (const Check& check : exercise.checks) points += check.points;
    CHECK(points == 100);
  }
}

TEST_CASE("the toolchain is read from its file, without what CMake left out", "[exercises]") {
  const cli::ScratchFolder folder;
  const std::string json = folder / "exercises.json";
  cli::write_file(json, R"({"compiler": "g++", "launcher": [""], "flags": ["-I{here}/x", ""],
      "link": [], "judge": "", "exercises": "{here}/../texts", "source": "", "catch2": []})");
  const Toolchain one = read_toolchain(json);
  CHECK(one.launcher.empty());
  CHECK(one.flags == std::vector<std::string>{"-I" + folder.path() + "/x"});
  CHECK(one.exercises == std::filesystem::path(folder.path()).parent_path().string() + "/texts");
  for (const char* text : {"{}", "text"})
    CHECK_THROWS_AS(read_toolchain(cli::write_file(json, text)), InputError);
}

}  // namespace zl::exercises
