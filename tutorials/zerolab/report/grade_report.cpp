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
const std::string kPrinted = "Your code printed:\n", kNoFile = "no file that can be graded",
                  kRefused = "refused, or does not compile";

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

// Gradescope knows "passed" and "failed" only.
Json test_of(size_t number, const CheckResult& result) {
  const bool passed = result.outcome == Outcome::passed;
  static constexpr const char* words[] = {"passed", "failed", "skipped"};
  return {
      {"score", passed ? result.check.points : 0},
      {"max_score", result.check.points},
      {"status", passed ? "passed" : "failed"},
      {"name", result.check.name},
      {"number", std::to_string(number)},
      {"output", output_of(result)},
      {"tags", {result.check.group}},
      {"extra_data", {{"outcome", words[size_t(result.outcome)]}, {"seconds", result.seconds}}}};
}

// `text` with some characters replaced.
std::string replaced(const std::string& text, const std::map<char, std::string>& by) {
  std::string all;
  for (const char c : text) all += by.contains(c) ? by.at(c) : std::string(1, c);
  return all;
}

// A cell of text. A spreadsheet computes cells that begin with one of these characters; the
// apostrophe makes them text.
std::string cell(const Json& text) {
  std::string shown = printable(text.get<std::string>());
  const size_t first = shown.find_first_not_of(" \t\n");
  if (first != std::string::npos && std::string("=+-@").find(shown[first]) != std::string::npos)
    shown = "'" + shown;
  if (shown.find_first_of("\",\n") == std::string::npos) return shown;
  return "\"" + replaced(shown, {{'"', "\"\""}}) + "\"";
}

std::string xml(const Json& text) {
  return replaced(text, {{'<', "&lt;"}, {'&', "&amp;"}, {'"', "&quot;"}});
}

}  // namespace

std::string grade_json(const Exercise& exercise, const Submission& submission,
                       const exercises::Grade& grade) {
  const CheckResult* failed = grade.first_failure();
  const bool refused = !grade.refused.empty(), missing = !submission.problem.empty();
  double seconds = grade.build_seconds;
  Json tests = Json::array();
  for (size_t i = 0; i < exercise.checks.size(); ++i) {
    const CheckResult result =
        grade.results.empty() ? CheckResult{.check = exercise.checks[i]} : grade.results[i];
    tests.push_back(test_of(i + 1, result));
    seconds += result.seconds;
  }
  return json_text(Json{
      {"score", grade.points()},
      {"execution_time", seconds},
      {"output", refused ? "REFUSED: no check ran.\n" + indented(shortened(grade.refused), "  ")
                 : !grade.warnings.empty() ? "Warnings of the compiler, which cost no points:\n" +
                                                 indented(shortened(grade.warnings, 2000), "  ")
                                           : shortened(submission.problem)},
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
        {"refused", refused},
        {"first_failed", missing   ? kNoFile
                         : refused ? kRefused
                         : failed  ? failed->check.name
                                   : ""},
        {"meaning", one_line(missing   ? submission.problem
                             : refused ? grade.refused
                             : failed  ? failed->meaning
                                       : "")},
        {"build_seconds", grade.build_seconds}}}});
}

std::string grade_text(const std::string& document, const std::string& next) {
  const Json grade = Json::parse(document);
  const Json& extra = grade["extra_data"];
  const auto word = [&](const char* key) { return extra[key].get<std::string>(); };
  std::string text = word("exercise") + " \"" + word("title") + "\", " + word("file");
  if (!word("student").empty()) text += ", sizes and data of student " + word("student");
  text += "\n";
  TextTable table;
  table.row({"check", "points", "seconds", ""});
  std::string failures;
  std::map<std::string, std::string> shown;  // the check that first failed with this text
  for (const Json& test : grade["tests"]) {
    const std::string name = test["name"], output = test["output"],
                      outcome = test["extra_data"]["outcome"];
    const bool failed = outcome == "failed";
    table.row(
        {name, str(test["score"].get<int>(), " of ", test["max_score"].get<int>()),
         outcome == "skipped" ? "-" : format("%.2f", test["extra_data"]["seconds"].get<double>()),
         failed ? "FAILED" : outcome});
    if (!failed) continue;
    const auto [first, is_new] = shown.try_emplace(output.substr(0, output.find(kPrinted)), name);
    failures += "\nFAILED " + name + "\n" +
                indented(is_new ? output : "the same as in '" + first->second + "'", "  ");
  }
  if (!extra["refused"].get<bool>()) text += table.text() + failures;
  if (const std::string output = grade["output"]; !output.empty())
    text += "\n" + indented(output, "");
  text += str("\n", grade["score"].get<int>(), " of 100 points, compiled in ",
              format("%.1f", extra["build_seconds"].get<double>()), " s, exercise of version ",
              word("version"), "\n");
  const bool no_next = next.empty() || grade["score"] == 100 || extra["refused"];
  return text + (no_next ? "" : "next: " + printable(next) + "\n");
}

std::string junit_without_checks(const std::string& document) {
  const Json grade = Json::parse(document);
  const Json& extra = grade["extra_data"];
  const std::string suite =
      extra["exercise"].get<std::string>() + " " + extra["version"].get<std::string>();
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"" + suite +
         "\" errors=\"1\" failures=\"0\" skipped=\"0\" tests=\"1\" time=\"0\">\n<testcase "
         "classname=\"" +
         suite + ".global\" name=\"the file\" time=\"0\"><error type=\"refused\" message=\"" +
         xml(extra["meaning"]) + "\">" + xml(grade["output"]) +
         "</error></testcase>\n</testsuite>\n</testsuites>\n";
}

std::string csv_names(const std::string& document) {
  std::string text = "student,file,points,of,version";
  const Json grade = Json::parse(document);
  for (const Json& test : grade["tests"]) text += "," + cell(test["name"]);
  return text + ",first failed check,meaning\r\n";
}

std::string csv_row(const std::string& document) {
  const Json grade = Json::parse(document), extra = grade["extra_data"];
  std::string text = cell(extra["student"]) + "," + cell(extra["file"]) + "," +
                     grade["score"].dump() + ",100," + cell(extra["version"]);
  for (const Json& test : grade["tests"]) text += "," + test["score"].dump();
  return text + "," + cell(extra["first_failed"]) + "," + cell(extra["meaning"]) + "\r\n";
}

std::string grades_text(std::span<const std::string> grades) {
  double sum = 0;
  int full = 0;
  for (const std::string& document : grades) {
    const double score = Json::parse(document)["score"];
    sum += score;
    full += score == 100;
  }
  return str(plural(std::ssize(grades), "student"), ", ", full, " with all points, mean ",
             format("%.1f", sum / double(grades.size())), "\n");
}

}  // namespace zl::cli
