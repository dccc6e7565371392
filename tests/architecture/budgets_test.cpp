// How much the parts of the tree may have in all: the table and the counting rule of budgets.md.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

struct Row {
  std::string name, counts;
  std::set<std::string> folders;
  int64_t limit = 0;
};

std::vector<Row> rows_of(const std::string& page) {
  static const std::regex cells("\\| (.+) \\| (.+) \\| (.+) \\| ([0-9]+) \\| [0-9]+ \\|"),
      comma(", ");
  std::vector<Row> rows;
  for (const std::string& line : split_lines(page)) {
    if (!line.starts_with("| ") || line.starts_with("| row |")) continue;
    std::smatch cell;
    REQUIRE(std::regex_match(line, cell, cells));
    const std::string folders = cell[3];
    const std::sregex_token_iterator each(folders.begin(), folders.end(), comma, -1), end;
    rows.push_back({cell[1], cell[2], {each, end}, std::stoll(cell[4])});
  }
  return rows;
}

bool has_end(const File& file, const std::set<std::string>& ends) {
  const size_t dot = file.path.rfind('.');
  return dot != std::string::npos && ends.contains(file.path.substr(dot));
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

// The lines that are only a comment, or those that have code; neither counts blank ones.
int64_t count(const std::string& text, bool of_comments) {
  const auto lines = split_lines(text), comments = split_lines(comments_only(text));
  int64_t sum = 0;
  for (size_t i = 0; i < lines.size(); ++i)
    sum += !is_blank(lines[i]) && (lines[i] == comments[i]) == of_comments;
  return sum;
}

// The folder of the table that a file belongs to: its own, or the nearest above it with '/' at the
// end; "" if there is none.
std::string folder_in_table(const std::string& path, const std::set<std::string>& named) {
  std::string folder = folder_of(path);
  if (named.contains(folder)) return folder;
  for (; !folder.empty(); folder = folder_of(folder))
    if (named.contains(folder + "/")) return folder + "/";
  return "";
}

// What a row counts in a file; 0 if the file is of another kind.
int64_t counted(const Row& row, const File& file) {
  static const std::set<std::string> ours = {".h", ".cpp", ".cu"},
                                     data = {".safetensors", ".bin", ".gz", ".png"},
                                     others = {".js", ".css", ".html", ".py", ".sh", ".cmake"};
  const auto lines = split_lines(file.text);
  if (row.counts == "lines") return has_end(file, data) ? 0 : int64_t(lines.size());
  if (is_test(file)) return 0;
  if (row.counts == "not blank")
    return has_end(file, others) ? std::ranges::count_if(lines, std::not_fn(is_blank)) : 0;
  if (row.counts == "code") return has_end(file, ours) ? count(file.text, false) : 0;
  REQUIRE(row.counts == "comments");
  const bool is_public = file.path.ends_with(".h") && !file.path.starts_with("tutorials/zerolab/");
  return is_public ? count(file.text, true) : 0;
}

// "core has 6,800 lines …, at most 6,767; the largest files: …", or "".
std::string check_row(const Row& row, const std::vector<File>& files,
                      const std::set<std::string>& named) {
  int64_t sum = 0;
  std::vector<std::pair<int64_t, std::string>> sizes;
  for (const File& file : files) {
    if (!row.folders.contains("*") && !row.folders.contains(folder_in_table(file.path, named)))
      continue;
    sizes.emplace_back(counted(row, file), file.path);
    sum += sizes.back().first;
  }
  const bool lower = row.counts == "comments";
  if (lower ? sum >= row.limit : sum <= row.limit) return "";
  std::ostringstream text;
  text << "the row '" << row.name << "' of budgets.md has " << sum << " (" << row.counts << "), at "
       << (lower ? "least " : "most ") << row.limit << "; its largest files:";
  std::ranges::sort(sizes, std::greater{});
  for (size_t i = 0; i < std::min<size_t>(3, sizes.size()); ++i)
    text << " " << sizes[i].second << " " << sizes[i].first;
  return text.str();
}

std::vector<std::string> check_budgets(const std::string& page, const std::vector<File>& files) {
  const std::vector<Row> rows = rows_of(page);
  std::set<std::string> named, without_row;
  for (const Row& row : rows) named.insert(row.folders.begin(), row.folders.end());
  for (const File& file : files)
    if (folder_in_table(file.path, named).empty() && has_end(file, {".h", ".cpp", ".cu"}))
      without_row.insert(folder_of(file.path));
  std::vector<std::string> findings;
  for (const std::string& folder : without_row)
    findings.push_back("the folder '" + folder + "' is in no row of budgets.md");
  for (const Row& row : rows)
    if (const std::string wrong = check_row(row, files, named); !wrong.empty())
      findings.push_back(wrong);
  return findings;
}

}  // namespace

TEST_CASE("every part of the tree keeps its budget of lines", "[architecture]") {
  const auto files = files_below(
      {"tensor", "autograd", "nn", "optim", "dist", "stages", "tutorials", "cmake", "tests"});
  CHECK(joined(check_budgets(read_source("tests/architecture/budgets.md"), files)) == "");
}

TEST_CASE("a budget that is exceeded, and a folder without one, are noticed", "[architecture]") {
  const std::vector<File> files = {
      {"nn/a.h",
       "// one\n\nint x;  // two\n/* three\n   four */\nauto s = R\"(\n// five\n\n)\";\n"},
      {"nn/deep/b.cpp", "int y;\n\n"},
      {"nn/c.js", "// a comment counts\n\n"},
      {"tests/nn/a.png", "1\n"},
      {"tests/nn/a_test.cpp", "// one\n\nint z;\n"}};
  const auto found = [&](const std::string& table) { return check_budgets(table, files); };
  const std::string right =
      "| row | counts | folders | at most | target |\n|---|---|---|---|---|\n"
      "| N | code | nn/ | 5 | 1 |\n| J | not blank | * | 1 | 0 |\n| T | lines | tests/ | 3 | 0 |\n"
      "| C | comments | * | 3 | 0 |\n";
  CHECK(joined(found(right)) == "");
  const auto changed = [&](const std::string& from, const std::string& to) {
    return joined(found(std::string(right).replace(right.find(from), from.size(), to)));
  };
  CHECK(changed("nn/ | 5", "nn/ | 4") ==
        "the row 'N' of budgets.md has 5 (code), at most 4; its largest files: nn/a.h 4 "
        "nn/deep/b.cpp 1 nn/c.js 0\n");
  CHECK(changed("nn/ | 5", "nn | 4") == "the folder 'nn/deep' is in no row of budgets.md\n");
  CHECK(changed("* | 1", "* | 0")
            .starts_with("the row 'J' of budgets.md has 1 (not blank), at most"));
  CHECK(changed("tests/ | 3", "tests/ | 2").starts_with("the row 'T' of budgets.md has 3 (lines)"));
  CHECK(changed("* | 3", "* | 4")
            .starts_with("the row 'C' of budgets.md has 3 (comments), at least 4"));
}

}  // namespace architecture
