// The grader on whole files: right/NN_name.cpp gets all points, or the stage file of the library
// where there is none; those in wrong/NN_name and cheats/NN_name fail, each with the diagnosis in
// its first line.
//   // diagnosis: <part of what is said>
//   // check: <the first check that fails, or "refused">   (may be left out)
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/exercises/grading.h"
#include "tests/zerolab/process.h"

namespace zl::exercises {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = ZEROLAB_SOURCE_DIR "/tests/exercises";
constexpr size_t kFewestWrong = 5;

struct Solution {
  std::string file, diagnosis, check;  // the last two: that it must get
  Grade grade;
  std::string error;  // of the grader itself
};

// "zeros" of a line "// diagnosis: zeros"; "" if there is none.
std::string named(const std::string& text, const std::string& key) {
  const std::vector<std::string> lines = cli::lines(text);
  for (size_t k = 0; k < std::min<size_t>(lines.size(), 2); ++k)
    if (lines[k].starts_with("// " + key + ": ")) return lines[k].substr(key.size() + 5);
  return "";
}

std::vector<Solution> solutions_in(const fs::path& folder) {
  std::vector<Solution> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = cli::read_file(entry.path().string());
    all.push_back({.file = entry.path().string(),
                   .diagnosis = named(text, "diagnosis"),
                   .check = named(text, "check")});
  }
  std::sort(all.begin(), all.end(),
            [](const Solution& a, const Solution& b) { return a.file < b.file; });
  return all;
}

// All of them with ZEROLAB_NIGHTLY=1; otherwise kFewestWrong, spread over their names: each takes
// two seconds to compile.
std::vector<Solution> for_today(const std::vector<Solution>& all) {
  if (std::getenv("ZEROLAB_NIGHTLY") != nullptr || all.size() < kFewestWrong) return all;
  std::vector<Solution> some;
  for (size_t k = 0; k < kFewestWrong; ++k) some.push_back(all[k * all.size() / kFewestWrong]);
  return some;
}

// Two at a time.
void grade_all(const Exercise& exercise, std::vector<Solution>& solutions) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k = next++; k < solutions.size(); k = next++) {
      GradeOptions options;
      options.check.seed = seed_of("");
      options.stop_at_first_failure = !solutions[k].diagnosis.empty();
      try {
        solutions[k].grade = grade(exercise, solutions[k].file, toolchain(), options);
      } catch (const std::exception& e) {
        solutions[k].error = e.what();
      }
    }
  };
  std::thread other(work);
  work();
  other.join();
}

std::string evidence(const Grade& grade) {
  std::string all = grade.refused;
  for (const CheckResult& result : grade.results)
    if (result.outcome == Outcome::failed)
      all += "\n" + result.check.name + ": " + result.verdict.meaning + "\n" +
             result.verdict.details + "\n" + result.output;
  return all;
}

std::string reference(const Exercise& exercise) {
  const fs::path own = kFolder / "right" / (exercise.name + ".cpp");
  return fs::exists(own) ? own.string()
                         : ZEROLAB_SOURCE_DIR "/stages/" + exercise.name.substr(3) + ".cpp";
}

void check_solutions(const std::string& which) {
  const Exercise& exercise = find_exercise(which);
  std::vector<Solution> right = {{.file = reference(exercise)}};
  grade_all(exercise, right);
  {
    CAPTURE(right[0].error, evidence(right[0].grade));
    REQUIRE(right[0].grade.passed());
  }

  std::vector<Solution> wrong = for_today(solutions_in(kFolder / "wrong" / exercise.name));
  CHECK(wrong.size() >= kFewestWrong);
  for (const Solution& cheat : solutions_in(kFolder / "cheats" / exercise.name))
    wrong.push_back(cheat);
  grade_all(exercise, wrong);
  for (const Solution& one : wrong) {
    CAPTURE(one.file, one.error, evidence(one.grade));
    CHECK_FALSE(one.diagnosis.empty());
    CHECK(one.error.empty());
    CHECK_FALSE(one.grade.passed());
    const std::string said = diagnosis(one.grade);
    if (!cli::contains(said, one.diagnosis)) CHECK(said == one.diagnosis);
    if (!one.check.empty()) CHECK(first_failure(one.grade) == one.check);
  }
}

}  // namespace

TEST_CASE("exercise 01 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("01");
}
TEST_CASE("exercise 02 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("02");
}
TEST_CASE("exercise 03 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("03");
}
TEST_CASE("exercise 04 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("04");
}
TEST_CASE("exercise 05 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("05");
}
TEST_CASE("exercise 06 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("06");
}
TEST_CASE("exercise 07 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("07");
}
TEST_CASE("exercise 08 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("08");
}
TEST_CASE("exercise 09 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("09");
}
TEST_CASE("exercise 10 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("10");
}
TEST_CASE("exercise 11 tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  check_solutions("11");
}

TEST_CASE("the exercises are 01 to 11, and their points add up to 100", "[exercises]") {
  REQUIRE(all_exercises().size() == 11);
  for (size_t k = 0; k < all_exercises().size(); ++k) {
    const Exercise& exercise = all_exercises()[k];
    CAPTURE(exercise.name);
    CHECK(exercise.number == int(k) + 1);
    CHECK(exercise.name.starts_with((k < 9 ? "0" : "") + std::to_string(k + 1) + "_"));
    CHECK_FALSE(exercise.defines.empty());
    int points = 0;
    for (const Check& check : exercise.checks) points += check.points;
    CHECK(points == 100);
    for (const char* file : {"task.md", "start.cpp", "hints.md"})
      CHECK(fs::exists(fs::path(toolchain().exercises) / exercise.name / file));
  }
}

// The contract of a start file is there, and its bodies say what is to be written.
TEST_CASE("the file that each exercise starts with compiles and is not written yet",
          "[exercises][solutions]") {
  for (const Exercise& exercise : all_exercises()) {
    const fs::path start = fs::path(toolchain().exercises) / exercise.name / "start.cpp";
    const Grade result = grade(exercise, start.string(), toolchain(), {});
    CAPTURE(exercise.name, result.refused, result.warnings);
    CHECK(result.refused.empty());
    CHECK(diagnosis(result).starts_with("not written yet: "));
    CHECK(result.points() == 0);
  }
}

}  // namespace zl::exercises
