// The grader on whole files. right/NN_name.cpp, or the stage file of the library, gets all points;
// wrong/NN_name.patch and cheats/NN_name.patch do not. tutorials/exercises/README.md says how these
// are written.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <regex>
#include <set>
#include <thread>

#include "tensor/error.h"
#include "tests/exercises/grading.h"
#include "tests/zerolab/process.h"

namespace zl::exercises {
namespace {

namespace fs = std::filesystem;

const fs::path kTree = ZEROLAB_SOURCE_DIR;
constexpr size_t kSample = 5, kFewestWrong = 8;

struct Solution {
  std::string name, check, diagnosis;  // the last two: that it must get
  std::string from;                    // "wrong/05_zero1.patch: never_reduces"
  std::vector<std::string> changes;
  std::string file;
  Grade grade;
  std::string error;  // of the grader itself
};

std::string reference(const Exercise& exercise) {
  const std::string own = "tests/exercises/right/" + exercise.name + ".cpp";
  return fs::exists(kTree / own) ? own : "stages/" + exercise.name.substr(3) + ".cpp";
}

// Of "wrong" or "cheats".
std::vector<Solution> solutions(const std::string& folder, const Exercise& exercise) {
  const std::string patch = folder + "/" + exercise.name + ".patch";
  std::vector<Solution> all;
  for (const std::string& line : cli::lines(cli::read_file(kTree / "tests/exercises" / patch))) {
    if (line.starts_with("=== ")) {
      const size_t end = line.find(" (");
      all.push_back({.name = line.substr(4, end - 4)});
      all.back().from = patch + ": " + all.back().name;
      if (end != line.npos) all.back().check = line.substr(end + 2, line.size() - end - 3);
    } else if (line.starts_with("says: ")) {
      all.back().diagnosis = line.substr(6);
    } else if (!line.empty() && !line.starts_with("#")) {
      all.back().changes.push_back(line);
    }
  }
  return all;
}

// `what` begins the message about a change that does not fit.
std::string changed(const std::string& original, const std::vector<std::string>& changes,
                    const std::string& what) {
  std::string text = "\n" + original, old, fresh;
  size_t at = 0;
  const auto change = [&] {
    if (old.empty()) {
      text = fresh + "\n";
    } else {
      const size_t begin = text.find(old + "\n", at);
      const bool there = begin != text.npos;
      if (!there || text.find(old + "\n", begin + 1) != text.npos)
        throw InputError(what + ": after the change before, these lines are " +
                         (there ? "there more than once:" : "not there:") + old);
      text.replace(begin, old.size(), fresh);
      at = begin + fresh.size();
    }
    old = fresh = "";
  };
  for (const std::string& line : changes) {
    if (line == "@@") {
      change();
      continue;
    }
    if (line.find_first_of(" -+") != 0) throw InputError(what + ": '" + line + "' is no change");
    if (line[0] != '+') old += "\n" + line.substr(1);
    if (line[0] != '-') fresh += "\n" + line.substr(1);
  }
  change();
  return text.substr(1);
}

// Without the lines that make the student's file of it.
std::string text_of(const std::string& right) {
  return std::regex_replace(cli::read_file(kTree / right), std::regex("\n *//[<>][^\n]*"), "");
}

std::string text_of(const Solution& solution, const Exercise& exercise) {
  const std::string right = reference(exercise);
  return changed(text_of(right), solution.changes, solution.from + " does not fit " + right);
}

// ZEROLAB_SEED=… takes the solutions of another day again.
std::string seed_of_today() {
  if (const char* seed = std::getenv("ZEROLAB_SEED")) return seed;
  const std::time_t now = std::time(nullptr);
  char day[16];
  std::strftime(day, sizeof day, "%F", std::gmtime(&now));
  return day;
}

std::vector<Solution> sample(std::vector<Solution> all, const std::string& seed) {
  std::ranges::sort(all, {}, [&](const Solution& one) { return seed_of(seed + " " + one.name); });
  all.resize(std::min(all.size(), kSample));
  return all;
}

// Two at a time: each takes two seconds to compile.
void grade_all(const Exercise& exercise, std::vector<Solution>& solutions) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k = next++; k < solutions.size(); k = next++) {
      GradeOptions options;
      options.seed = seed_of(seed_of_today());
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
      all += "\n" + result.check.name + ": " + result.meaning + "\n" + result.details + "\n" +
             result.output;
  return all;
}

void check_solutions(const Exercise& exercise, std::vector<Solution> wrong) {
  std::vector<Solution> right = {{.file = kTree / reference(exercise)}};
  grade_all(exercise, right);
  {
    CAPTURE(right[0].error, evidence(right[0].grade));
    REQUIRE(right[0].grade.passed());
  }
  const cli::ScratchFolder folder;
  for (Solution& one : wrong)
    one.file = cli::write_file(folder / (one.name + ".cpp"), text_of(one, exercise));
  grade_all(exercise, wrong);
  for (const Solution& one : wrong) {
    CAPTURE(one.from, one.error, evidence(one.grade));
    CHECK(one.error.empty());
    CHECK_FALSE(one.grade.passed());
    const std::string said = diagnosis(one.grade);
    if (!cli::contains(said, one.diagnosis)) CHECK(said == one.diagnosis);
    if (!one.check.empty()) CHECK(first_failure(one.grade) == one.check);
  }
}

}  // namespace

// A sample of the wrong ones, which changes with the day, and all of them with ZEROLAB_NIGHTLY=1.
TEST_CASE("each exercise tells right, wrong and dishonest files apart", "[exercises][solutions]") {
  const std::string seed = seed_of_today();
  for (const Exercise& exercise : exercises()) {
    DYNAMIC_SECTION(exercise.name) {
      std::vector<Solution> wrong = solutions("wrong", exercise);
      if (std::getenv("ZEROLAB_NIGHTLY") == nullptr) {
        wrong = sample(wrong, seed);
        std::printf("%s: %zu wrong solutions; ZEROLAB_SEED=%s takes the same ones again\n",
                    exercise.name.c_str(), wrong.size(), seed.c_str());
      }
      for (const Solution& cheat : solutions("cheats", exercise)) wrong.push_back(cheat);
      check_solutions(exercise, wrong);
    }
  }
}

TEST_CASE("each wrong or dishonest file is a change of its exercise's right one", "[exercises]") {
  for (const Exercise& exercise : exercises()) {
    CAPTURE(exercise.name);
    std::set<std::string> checks = {"", "refused"}, names;
    std::set<std::string> texts = {text_of(reference(exercise))};
    for (const Check& check : exercise.checks) checks.insert(check.name);
    std::vector<Solution> all = solutions("wrong", exercise);
    CHECK(all.size() >= kFewestWrong);
    for (const Solution& cheat : solutions("cheats", exercise)) all.push_back(cheat);
    for (const Solution& one : all) {
      CAPTURE(one.from);
      CHECK(names.insert(one.name).second);
      CHECK(texts.insert(text_of(one, exercise)).second);
      CHECK_FALSE(one.diagnosis.empty());
      CHECK(checks.contains(one.check));
    }
  }
}

// The contract of a start file is there, and its bodies say what is to be written.
TEST_CASE("the file that each exercise starts with compiles and is not written yet",
          "[exercises][solutions]") {
  for (const Exercise& exercise : exercises()) {
    const fs::path start = fs::path(toolchain().exercises) / exercise.name / "start.cpp";
    const Grade result = grade(exercise, start.string(), toolchain(), {.seed = seed_of("")});
    CAPTURE(exercise.name, result.refused, result.warnings);
    CHECK(result.refused.empty());
    CHECK(diagnosis(result).starts_with("not written yet: "));
    CHECK(result.points() == 0);
  }
}

}  // namespace zl::exercises
