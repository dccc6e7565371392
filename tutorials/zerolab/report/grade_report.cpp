#include "tutorials/zerolab/report/grade_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"

namespace zl::cli {
namespace {

using exercises::CheckResult, exercises::Exercise, exercises::Grade, exercises::Outcome;
using Json = nlohmann::ordered_json;

constexpr size_t kMostBytes = 8000;  // that a report shows of one text from outside
const std::string kPrinted = "Your code printed:\n";

// Its beginning, fit for a terminal; `bytes` counts what is shown, such as the six of \u001b.
std::string shortened(const std::string& text, size_t bytes = kMostBytes) {
  const std::string shown = printable(text);
  if (shown.size() <= bytes) return shown;
  const std::string begin = printable(shown.substr(0, bytes));  // may end within a character
  return begin + "\n… and " + with_commas(int64_t(shown.size() - bytes)) + " more bytes\n";
}

// `by` before each line, the last of which gets an end.
std::string indented(const std::string& text, const std::string& by) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    all += by + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return all;
}

// The beginning of the first two lines, which say what matters.
std::string one_line(const std::string& text) {
  std::string shown = shortened(text, 500);
  if (const size_t end = shown.find('\n'); end < shown.size() - 1) shown.replace(end, 1, "; ");
  return shown.substr(0, shown.find('\n'));
}

std::string output_of(const CheckResult& result) {
  if (result.outcome == Outcome::skipped)
    return "Not run, because an earlier check failed, or for the reason above.\n";
  return indented(shortened(result.meaning), "") + indented(shortened(result.details), "  ") +
         (result.output.empty() ? "" : kPrinted + indented(shortened(result.output, 2000), "| "));
}

const char* word(Outcome outcome) {
  static constexpr const char* words[] = {"passed", "failed", "skipped"};
  return words[size_t(outcome)];
}

// The first failed check and what its failure means; both "" with all points.
std::pair<std::string, std::string> first_failure(const Submission& s) {
  if (!s.problem.empty()) return {"no file that can be graded", one_line(s.problem)};
  if (!s.grade.refused.empty()) return {"refused, or does not compile", one_line(s.grade.refused)};
  const CheckResult* failed = s.grade.first_failure();
  if (!failed) return {};
  return {failed->check.name, one_line(failed->meaning)};
}

// What concerns all checks.
std::string remark(const Submission& s) {
  if (!s.grade.refused.empty())
    return "REFUSED: no check ran.\n" + indented(shortened(s.grade.refused), "  ");
  if (s.grade.warnings.empty()) return shortened(s.problem);
  return "Warnings of the compiler, which cost no points:\n" +
         indented(shortened(s.grade.warnings, 2000), "  ");
}

// `text` with some characters replaced.
std::string replaced(const std::string& text, const std::map<char, std::string>& by) {
  std::string all;
  for (const char c : text) all += by.contains(c) ? by.at(c) : std::string(1, c);
  return all;
}

// A cell of text. A spreadsheet computes cells that begin with one of these characters; the
// apostrophe makes them text.
std::string cell(const std::string& text) {
  std::string shown = printable_line(text);
  const size_t first = shown.find_first_not_of(' ');
  if (first != std::string::npos && std::string("=+-@").find(shown[first]) != std::string::npos)
    shown = "'" + shown;
  if (shown.find_first_of("\",") == std::string::npos) return shown;
  return "\"" + replaced(shown, {{'"', "\"\""}}) + "\"";
}

std::string xml(const std::string& text) {
  return replaced(text, {{'<', "&lt;"}, {'&', "&amp;"}, {'"', "&quot;"}});
}

// As Gradescope has it: all checks, also where none ran.
Json document(const Exercise& exercise, const Submission& submission) {
  const Grade& grade = submission.grade;
  double seconds = grade.build_seconds;
  Json tests = Json::array();
  std::vector<CheckResult> results = grade.results;
  for (size_t i = results.size(); i < exercise.checks.size(); ++i)
    results.push_back({.check = exercise.checks[i]});
  for (const CheckResult& result : results) {
    const bool passed = result.outcome == Outcome::passed;
    seconds += result.seconds;
    tests.push_back(
        {{"score", passed ? result.check.points : 0},
         {"max_score", result.check.points},
         {"status", passed ? "passed" : "failed"},  // Gradescope knows no other
         {"name", result.check.name},
         {"number", str(tests.size() + 1)},
         {"output", output_of(result)},
         {"tags", {result.check.group}},
         {"extra_data", {{"outcome", word(result.outcome)}, {"seconds", result.seconds}}}});
  }
  const auto [failed, meaning] = first_failure(submission);
  return {{"score", grade.points()},
          {"execution_time", seconds},
          {"output", remark(submission)},
          {"output_format", "text"},
          {"test_output_format", "text"},
          {"visibility", "visible"},
          {"stdout_visibility", "hidden"},
          {"tests", tests},
          {"extra_data",
           {{"schema", 1},
            {"command", "exercise check"},
            {"exercise", exercise.name},
            {"title", exercise.title},
            {"version", exercise.version},
            {"file", printable_line(submission.file)},
            {"student", printable_line(submission.student)},
            {"refused", !grade.refused.empty()},
            {"first_failed", failed},
            {"meaning", meaning},
            {"build_seconds", grade.build_seconds}}}};
}

}  // namespace

std::string grade_json(const Exercise& exercise, const Submission& submission) {
  return json_text(document(exercise, submission));
}

std::string grade_text(const Exercise& exercise, const Submission& submission,
                       const std::string& next) {
  const Grade& grade = submission.grade;
  const std::string student = printable_line(submission.student);
  TextTable table;
  table.row({"check", "points", "seconds", ""});
  std::string failures;
  std::map<std::string, std::string> shown;  // the check that first failed with this text
  for (const CheckResult& result : grade.results) {
    const std::string &name = result.check.name, output = output_of(result);
    const bool failed = result.outcome == Outcome::failed;
    const int points = result.outcome == Outcome::passed ? result.check.points : 0;
    table.row({name, str(points, " of ", result.check.points),
               result.outcome == Outcome::skipped ? "-" : format("%.2f", result.seconds),
               failed ? "FAILED" : word(result.outcome)});
    if (!failed) continue;
    const auto [first, is_new] = shown.try_emplace(output.substr(0, output.find(kPrinted)), name);
    failures += "\nFAILED " + name + "\n" +
                indented(is_new ? output : "the same as in '" + first->second + "'", "  ");
  }
  const std::string more = remark(submission);
  const bool no_next = next.empty() || grade.passed() || grade.results.empty();
  return str(exercise.name, " \"", exercise.title, "\", ", printable_line(submission.file),
             student.empty() ? "" : ", sizes and data of student " + student, "\n",
             grade.results.empty() ? "" : table.text(), failures, more.empty() ? "" : "\n",
             indented(more, ""), "\n", grade.points(), " of 100 points, compiled in ",
             format("%.1f", grade.build_seconds), " s, exercise of version ", exercise.version,
             "\n", no_next ? "" : "next: " + printable(next) + "\n");
}

std::string grade_junit(const Exercise& exercise, const Submission& submission) {
  if (!submission.grade.results.empty()) return submission.grade.junit;
  const std::string suite = exercise.name + " " + exercise.version;
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"" + suite +
         "\" errors=\"1\" failures=\"0\" skipped=\"0\" tests=\"1\" time=\"0\">\n<testcase "
         "classname=\"" +
         suite + ".global\" name=\"the file\" time=\"0\"><error type=\"refused\" message=\"" +
         xml(first_failure(submission).second) + "\">" + xml(remark(submission)) +
         "</error></testcase>\n</testsuite>\n</testsuites>\n";
}

void print_board(const Exercise& exercise, const std::vector<Submission>& all, bool as_json) {
  std::map<std::pair<std::array<Json, 4>, std::string>, Json> rows;  // null: not measured
  for (const Submission& one : all) {
    if (!one.grade.passed()) continue;
    std::array<Json, 4> most{nullptr, nullptr, nullptr, one.grade.lines};
    for (const CheckResult& result : one.grade.results)
      for (const auto& of_rank : result.costs)
        for (size_t i = 0; i < of_rank.size(); ++i) most[i] = std::max(most[i], Json(of_rank[i]));
    rows[{most, one.student}] = {{"student", printable_line(one.student)},
                                 {"bytes_at_peak", most[0]},
                                 {"bytes_sent", most[1]},
                                 {"calls", most[2]},
                                 {"lines", most[3]}};
  }
  Json board{{"schema", 1},
             {"command", "exercise board"},
             {"exercise", exercise.name},
             {"version", exercise.version},
             {"submissions", Json::array()},
             {"without_100_points", all.size() - rows.size()}};
  for (const auto& [order, row] : rows) board["submissions"].push_back(row);
  print_document(board, as_json);
}

std::string csv_names(const Exercise& exercise) {
  std::string text = "student,file,points,of,version";
  for (const exercises::Check& check : exercise.checks) text += "," + cell(check.name);
  return text + ",first failed check,meaning\r\n";
}

std::string csv_row(const Exercise& exercise, const Submission& submission) {
  const Json json = document(exercise, submission), &extra = json["extra_data"];
  std::string text = str(cell(submission.student), ",", cell(submission.file), ",",
                         submission.grade.points(), ",100,", cell(exercise.version));
  for (const Json& test : json["tests"]) text += "," + test["score"].dump();
  return text + "," + cell(extra["first_failed"]) + "," + cell(extra["meaning"]) + "\r\n";
}

}  // namespace zl::cli
