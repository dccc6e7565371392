#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/grade_report.h"

namespace zl::cli {
namespace {

using exercises::Check, exercises::CheckResult, exercises::Exercise, exercises::Outcome;
using Json = nlohmann::ordered_json;

const char* word(Outcome outcome) {
  return outcome == Outcome::passed ? "passed" : outcome == Outcome::failed ? "failed" : "skipped";
}

std::string output_of(const CheckResult& r, bool any_ran) {
  if (!any_ran) return "Not run. The text above the checks says why.";
  if (r.outcome == Outcome::skipped)
    return "Skipped, because an earlier check failed. Solve that one first.";
  std::string text = shortened(r.verdict.meaning);
  if (!r.verdict.details.empty()) text += (text.empty() ? "" : "\n") + shortened(r.verdict.details);
  if (!r.output.empty())
    text += (text.empty() ? "" : "\n") + std::string("Your code printed:\n") + shortened(r.output);
  return text;
}

// Gradescope knows "passed" and "failed" only.
Json test_of(int number, const CheckResult& r, bool any_ran) {
  const Check& check = r.check;
  const bool passed = r.outcome == Outcome::passed;
  return {{"score", passed ? check.points : 0},
          {"max_score", check.points},
          {"status", passed ? "passed" : "failed"},
          {"name", check.name},
          {"number", str(number)},
          {"output", output_of(r, any_ran)},
          {"tags", {check.group}},
          {"extra_data", {{"outcome", word(r.outcome)}, {"seconds", r.seconds}}}};
}

}  // namespace

std::string grade_json(const Exercise& exercise, const GradedFile& graded) {
  const exercises::Grade& grade = graded.grade;
  double seconds = grade.build_seconds;
  for (const CheckResult& r : grade.results) seconds += r.seconds;
  std::string output = shortened(graded.problem);
  if (!grade.refused.empty())
    output = "The file was refused; no check ran.\n" + shortened(grade.refused);
  else if (!grade.warnings.empty())
    output = "Warnings of the compiler:\n" + shortened(grade.warnings);
  Json json{{"score", graded.points()},
            {"execution_time", seconds},
            {"output", output},
            {"output_format", "text"},
            {"test_output_format", "text"},
            {"stdout_visibility", "hidden"},
            {"tests", Json::array()},
            {"extra_data",
             {{"schema", 1},
              {"command", "exercise check"},
              {"exercise", exercise.name},
              {"file", printable(graded.file)},
              {"student", graded.student},
              {"refused", !grade.refused.empty()},
              {"build_seconds", grade.build_seconds}}}};
  for (size_t i = 0; i < exercise.checks.size(); ++i) {
    CheckResult none;
    none.check = exercise.checks[i];
    const bool any = !grade.results.empty();
    json["tests"].push_back(test_of(int(i) + 1, any ? grade.results[i] : none, any));
  }
  return json_text(json);
}

}  // namespace zl::cli
