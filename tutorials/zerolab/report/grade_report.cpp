#include "tutorials/zerolab/report/grade_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using exercises::CheckResult, exercises::Exercise, exercises::Outcome;
using Json = nlohmann::ordered_json;

constexpr size_t kMostBytes = 8000;  // that a report shows of one text from outside

// Its beginning, fit for a terminal; `bytes` counts what is shown, such as the six of \u001b.
std::string shortened(const std::string& text, size_t bytes = kMostBytes) {
  const std::string shown = printable(text);
  if (shown.size() <= bytes) return shown;
  size_t end = bytes;
  while (end > 0 && (shown[end] & 0xc0) == 0x80) --end;  // not within a character
  return shown.substr(0, end) + "\n… and " + with_commas(int64_t(shown.size() - end)) +
         " more bytes\n";
}

std::string indented(const std::string& text, const std::string& by) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    all += by + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return all;
}

int points_of(const CheckResult& r) { return r.outcome == Outcome::passed ? r.check.points : 0; }

std::string failures_text(const std::vector<CheckResult>& results) {
  std::string text;
  std::map<std::string, std::string> shown;  // the check that first failed with this text
  for (const CheckResult& r : results) {
    if (r.outcome != Outcome::failed) continue;
    text += "\nFAILED " + r.check.name + "\n";
    const auto [first, is_new] = shown.try_emplace(r.meaning + "\n" + r.details, r.check.name);
    if (!is_new) {
      text += "  the same as in '" + first->second + "'\n";
      continue;
    }
    text += indented(shortened(r.meaning), "  ") + indented(shortened(r.details), "    ");
    if (!r.output.empty())
      text += "  Your code printed:\n" + indented(shortened(r.output, 2000), "  | ");
  }
  return text;
}

// A cell of text. A spreadsheet computes cells that begin with one of these characters; the
// apostrophe makes them text.
std::string cell(const std::string& text) {
  std::string shown = printable(text);
  const size_t first = shown.find_first_not_of(" \t\n");
  if (first != std::string::npos && std::string("=+-@").find(shown[first]) != std::string::npos)
    shown = "'" + shown;
  if (shown.find_first_of("\",\n") == std::string::npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// The beginning of the first two lines, which say what matters.
std::string one_line(std::string text) {
  const size_t first = std::min(text.find('\n'), text.size());
  text.resize(std::min(text.find('\n', first + 1), text.size()));
  if (first + 1 < text.size()) text.replace(first, 1, "; ");
  std::string shown = shortened(text, 500);
  return shown.substr(0, shown.find('\n'));
}

std::string output_of(const CheckResult& r) {
  if (r.outcome == Outcome::skipped)
    return "Not run, because an earlier check failed, or for the reason above.";
  std::string text;
  for (const std::string& part :
       {r.meaning, r.details, r.output.empty() ? "" : "Your code printed:\n" + r.output})
    if (!part.empty()) text += (text.empty() ? "" : "\n") + shortened(part);
  return text;
}

// Gradescope knows "passed" and "failed" only.
Json test_of(int number, const CheckResult& r) {
  static constexpr const char* words[] = {"passed", "failed", "skipped"};
  return {{"score", points_of(r)},
          {"max_score", r.check.points},
          {"status", r.outcome == Outcome::passed ? "passed" : "failed"},
          {"name", r.check.name},
          {"number", std::to_string(number)},
          {"output", output_of(r)},
          {"tags", {r.check.group}},
          {"extra_data", {{"outcome", words[size_t(r.outcome)]}, {"seconds", r.seconds}}}};
}

}  // namespace

std::string GradedFile::failed_check() const {
  const CheckResult* failed = grade.first_failure();
  return failed == nullptr ? "" : failed->check.name;
}

std::string GradedFile::meaning() const {
  if (!problem.empty()) return problem;
  if (!grade.refused.empty()) return grade.refused;
  const CheckResult* failed = grade.first_failure();
  return failed == nullptr ? "" : failed->meaning;
}

std::string grade_text(const Exercise& exercise, const GradedFile& graded,
                       const std::string& next) {
  const exercises::Grade& grade = graded.grade;
  std::string text = exercise.name + " \"" + exercise.title + "\", " + graded.file;
  if (!graded.student.empty()) text += ", sizes and data of student " + graded.student;
  text = printable_line(text) + "\n";
  if (!grade.refused.empty())
    return text + "\nREFUSED: no check ran.\n" + indented(shortened(grade.refused, 6000), "  ") +
           "\n0 of 100 points\n";
  TextTable table;
  table.row({"check", "points", "seconds", ""});
  for (const CheckResult& r : grade.results)
    table.row({r.check.name, str(points_of(r), " of ", r.check.points),
               r.outcome == Outcome::skipped ? "-" : format("%.2f", r.seconds),
               r.outcome == Outcome::passed   ? "passed"
               : r.outcome == Outcome::failed ? "FAILED"
                                              : "skipped"});
  text += table.text() + failures_text(grade.results);
  if (!grade.warnings.empty())
    text += "\nWarnings of the compiler, which cost no points:\n" +
            indented(shortened(grade.warnings, 2000), "  ");
  text += str("\n", grade.points(), " of 100 points, compiled in ",
              format("%.1f", grade.build_seconds), " s\n");
  if (!grade.passed() && !next.empty()) text += "next: " + printable(next) + "\n";
  return text;
}

std::string grade_json(const Exercise& exercise, const GradedFile& graded) {
  const exercises::Grade& grade = graded.grade;
  double seconds = grade.build_seconds;
  for (const CheckResult& r : grade.results) seconds += r.seconds;
  const std::string output =
      !grade.refused.empty()    ? "The file was refused; no check ran.\n" + grade.refused
      : !grade.warnings.empty() ? "Warnings of the compiler:\n" + grade.warnings
                                : graded.problem;
  Json json{{"score", grade.points()},
            {"execution_time", seconds},
            {"output", shortened(output)},
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
  for (size_t i = 0; i < exercise.checks.size(); ++i)
    json["tests"].push_back(test_of(int(i) + 1, grade.results.empty()
                                                    ? CheckResult{.check = exercise.checks[i]}
                                                    : grade.results[i]));
  return json_text(json);
}

std::string grades_csv(const Exercise& exercise, std::span<const GradedFile> all) {
  std::string text = "student,file,points,of";
  for (const auto& check : exercise.checks) text += "," + cell(check.name);
  text += ",first failed check,meaning\r\n";
  for (const GradedFile& graded : all) {
    text +=
        cell(graded.student) + "," + cell(graded.file) + str(",", graded.grade.points(), ",100");
    for (size_t i = 0; i < exercise.checks.size(); ++i)
      text += str(",", graded.grade.results.empty() ? 0 : points_of(graded.grade.results[i]));
    text += "," + cell(graded.failed_check()) + "," + cell(one_line(graded.meaning())) + "\r\n";
  }
  return text;
}

std::string grades_text(const Exercise& exercise, std::span<const GradedFile> all) {
  const auto full = std::ranges::count_if(all, [](auto& g) { return g.grade.passed(); });
  double sum = 0;
  for (const GradedFile& g : all) sum += g.grade.points();
  std::string text = str(plural(int64_t(all.size()), "student"), ", ", full,
                         " with all points, mean ", format("%.1f", sum / double(all.size())), "\n");
  TextTable table;
  table.row({"first failed check", "students"});
  const auto row = [&](const std::string& name, auto counted) {
    if (const auto n = std::ranges::count_if(all, counted); n > 0) table.row({name, str(n)});
  };
  row("no file that can be graded", [](auto& g) { return !g.problem.empty(); });
  row("refused, or does not compile", [](auto& g) { return !g.grade.refused.empty(); });
  for (const auto& check : exercise.checks)
    row(check.name, [&](auto& g) { return g.failed_check() == check.name; });
  return full == int64_t(all.size()) ? text : text + table.text();
}

}  // namespace zl::cli
