#include "tests/exercises/grading.h"

#include <filesystem>

#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace zl::exercises {
namespace {

Verdict judge(const Check& check, const CheckOptions&, const Record& record) {
  if (check.name == "answer" && record.numbers.at("answer").at(0) != 42)
    return {.meaning = "not twice x"};
  return {.passed = true};
}

}  // namespace

const Toolchain& toolchain() {
  static const Toolchain one = read_toolchain(
      (std::filesystem::path(ZEROLAB_BINARY).parent_path() / "exercises/exercises.json").string());
  return one;
}

const Exercise& probe() {
  static const Exercise one = {.number = 99,
                               .name = "99_probe",
                               .title = "Twice a number",
                               .checks = {{"answer", "first", 40},
                                          {"threads", "first", 30},
                                          {"errors", "second", 20},
                                          {"heap", "third", 10}},
                               .headers = {"tests/exercises/probe/answer.h"},
                               .defines = {"zl::exercises::answer("},
                               .judge = judge};
  return one;
}

std::string probe_file(const std::string& body) {
  return "#include \"tests/exercises/probe/answer.h\"\n" + body;
}

Grade grade_text(const Exercise& exercise, const std::string& text, const GradeOptions& options) {
  const cli::ScratchFolder folder;
  return grade(exercise, cli::write_file(folder / "answer.cpp", text), toolchain(), options);
}

std::string first_failure(const Grade& grade) {
  if (!grade.refused.empty()) return "refused";
  for (const CheckResult& result : grade.results)
    if (result.outcome == Outcome::failed) return result.check.name;
  return "";
}

std::string diagnosis(const Grade& grade) {
  for (const CheckResult& result : grade.results)
    if (result.outcome == Outcome::failed) return result.verdict.meaning;
  return grade.refused;
}

}  // namespace zl::exercises
