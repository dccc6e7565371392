#include <algorithm>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/report/grade_report.h"

namespace zl::cli {
namespace {

using exercises::CheckResult, exercises::Exercise, exercises::Outcome;

constexpr size_t kPrintedLines = 20, kPrintedBytes = 2000;
constexpr size_t kCompilerLines = 30, kCompilerBytes = 6000;

std::string indented(const std::string& text, const std::string& by) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    all += by + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return all;
}

std::string checks_table(const std::vector<CheckResult>& results) {
  TextTable table;
  table.row({"check", "points", "seconds", ""});
  for (const CheckResult& r : results) {
    const bool ran = r.outcome != Outcome::skipped;
    table.row({r.check.name,
               str(r.outcome == Outcome::passed ? r.check.points : 0, " of ", r.check.points),
               ran ? format("%.2f", r.seconds) : "-",
               r.outcome == Outcome::passed ? "passed"
               : ran                        ? "FAILED"
                                            : "skipped"});
  }
  return table.text();
}

std::string without_numbers(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

// Whether one of the two texts is enough. Numbers of an exception are sizes, which differ from
// check to check; those of a verdict with evidence say something.
bool is_same(const exercises::Verdict& a, const exercises::Verdict& b) {
  if (a.details != b.details) return false;
  return a.details.empty() ? without_numbers(a.meaning) == without_numbers(b.meaning)
                           : a.meaning == b.meaning;
}

// `same`: the failure before this one that was shown with the same text, or nullptr.
std::string failure_text(const CheckResult& r, const CheckResult* same) {
  std::string text = "\nFAILED " + r.check.name + "\n";
  if (same != nullptr)
    text += "  the same as in '" + same->check.name +
            (same->verdict.meaning == r.verdict.meaning ? "'\n" : "', but with other numbers\n");
  else
    text += indented(shortened(r.verdict.meaning), "  ") +
            indented(shortened(r.verdict.details), "    ");
  if (!r.output.empty() && (same == nullptr || same->output != r.output))
    text += "  Your code printed:\n" +
            indented(shortened(r.output, kPrintedLines, kPrintedBytes), "  | ");
  return text;
}

// Several checks often fail alike: one of them shows why.
std::string failures_text(const std::vector<CheckResult>& results) {
  std::string text;
  std::vector<const CheckResult*> shown;
  for (const CheckResult& r : results) {
    if (r.outcome != Outcome::failed) continue;
    const auto same = std::ranges::find_if(
        shown, [&](const CheckResult* s) { return is_same(s->verdict, r.verdict); });
    text += failure_text(r, same == shown.end() ? nullptr : *same);
    if (same == shown.end()) shown.push_back(&r);
  }
  return text;
}

}  // namespace

size_t fitting(const std::string& text, size_t bytes) {
  size_t end = std::min(text.size(), bytes);
  const auto within = [&] { return end < text.size() && (text[end] & 0xc0) == 0x80; };
  for (;;) {
    for (int back = 0; back < 3 && end > 0 && within(); ++back) --end;  // not within UTF-8
    const size_t shown = printable(text.substr(0, end)).size();
    if (shown <= bytes) return end;
    end = end * bytes / shown;
  }
}

std::string shortened(const std::string& text, size_t lines, size_t bytes) {
  size_t end = 0;
  for (size_t line = 0; line < lines && end < text.size(); ++line)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  end = fitting(text.substr(0, end), bytes);
  std::string shown = printable(text.substr(0, end));
  if (end == text.size()) return shown;
  if (!shown.ends_with('\n')) shown += "\n";
  return shown + "… and " + with_commas(int64_t(text.size() - end)) + " more bytes\n";
}

int most_points(const Exercise& exercise) {
  int points = 0;
  for (const auto& check : exercise.checks) points += check.points;
  return points;
}

std::string GradedFile::failed_check() const {
  for (const CheckResult& r : grade.results)
    if (r.outcome == Outcome::failed) return r.check.name;
  return "";
}

std::string GradedFile::meaning() const {
  if (!problem.empty()) return problem;
  if (!grade.refused.empty()) return grade.refused;
  for (const CheckResult& r : grade.results)
    if (r.outcome == Outcome::failed) return r.verdict.meaning;
  return "";
}

std::string grade_text(const Exercise& exercise, const GradedFile& graded,
                       const std::string& next) {
  const exercises::Grade& grade = graded.grade;
  std::string text = exercise.name + " \"" + exercise.title + "\", " + graded.file;
  if (!graded.student.empty()) text += ", sizes and data of student " + graded.student;
  text = printable_line(text) + "\n";
  if (!grade.refused.empty())
    return text + "\nREFUSED: no check ran.\n" +
           indented(shortened(grade.refused, kCompilerLines, kCompilerBytes), "  ") +
           str("\n0 of ", most_points(exercise), " points\n");
  text += checks_table(grade.results);
  text += failures_text(grade.results);
  if (!grade.warnings.empty())
    text += "\nWarnings of the compiler, which cost no points:\n" +
            indented(shortened(grade.warnings, kPrintedLines, kPrintedBytes), "  ");
  text += str("\n", grade.points(), " of ", grade.most_points(), " points, compiled in ",
              format("%.1f", grade.build_seconds), " s\n");
  if (!grade.passed() && !next.empty()) text += "next: " + printable(next) + "\n";
  return text;
}

std::string grades_text(const Exercise& exercise, std::span<const GradedFile> all) {
  const auto full = std::ranges::count_if(
      all, [](const GradedFile& g) { return g.problem.empty() && g.grade.passed(); });
  double sum = 0;
  for (const GradedFile& g : all) sum += g.points();
  std::string text = str(plural(int64_t(all.size()), "student"), ", ", full,
                         " with all points, mean ", format("%.1f", sum / double(all.size())), "\n");
  TextTable table;
  table.row({"first failed check", "students"});
  const auto row = [&](const std::string& name, auto counted) {
    if (const auto n = std::ranges::count_if(all, counted); n > 0) table.row({name, str(n)});
  };
  row("no file that can be graded", [](const GradedFile& g) { return !g.problem.empty(); });
  row("refused, or does not compile", [](const GradedFile& g) { return !g.grade.refused.empty(); });
  for (const auto& check : exercise.checks)
    row(check.name, [&](const GradedFile& g) { return g.failed_check() == check.name; });
  return full == int64_t(all.size()) ? text : text + table.text();
}

}  // namespace zl::cli
