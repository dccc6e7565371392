#include <algorithm>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/grade_report.h"

namespace zl::cli {
namespace {

using exercises::CheckResult, exercises::Exercise, exercises::Outcome;

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
std::string one_line(const std::string& text) {
  const size_t first = std::min(text.find('\n'), text.size());
  const size_t second = std::min(text.find('\n', first + 1), text.size());
  std::string line = text.substr(0, second);
  if (first + 1 < second) line.replace(first, 1, "; ");
  const size_t end = fitting(line, 500);
  return end == line.size() ? line : line.substr(0, end) + " …";
}

std::string points_of(const GradedFile& graded, const std::string& check) {
  for (const CheckResult& r : graded.grade.results)
    if (r.check.name == check) return r.outcome == Outcome::passed ? str(r.check.points) : "0";
  return "0";
}

}  // namespace

std::string grades_csv(const Exercise& exercise, std::span<const GradedFile> all) {
  std::string text = "student,file,points,of";
  for (const auto& check : exercise.checks) text += "," + cell(check.name);
  text += ",first failed check,meaning\r\n";
  for (const GradedFile& graded : all) {
    text += cell(graded.student) + "," + cell(graded.file) +
            str(",", graded.points(), ",", most_points(exercise));
    for (const auto& check : exercise.checks) text += "," + points_of(graded, check.name);
    text += "," + cell(graded.failed_check()) + "," + cell(one_line(graded.meaning())) + "\r\n";
  }
  return text;
}

}  // namespace zl::cli
