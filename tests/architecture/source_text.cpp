#include "tests/architecture/source_text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sstream>

#include "tests/paths.h"

namespace architecture {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool raw_string_at(const std::string& text, size_t begin) {
  return text.compare(begin, 2, "R\"") == 0 && (begin == 0 || !is_word(text[begin - 1]));
}

// Where the literal or comment that starts at `begin` ends (one past it), or `begin` if none starts
// there.
size_t end_of_quoted(const std::string& text, size_t begin) {
  const auto after = [&](const std::string& what, size_t from) {
    const size_t at = text.find(what, from);
    return at == std::string::npos ? text.size() : at + what.size();
  };
  if (text.compare(begin, 2, "//") == 0) return std::min(text.find('\n', begin), text.size());
  if (text.compare(begin, 2, "/*") == 0) return after("*/", begin + 2);
  if (raw_string_at(text, begin)) {
    const size_t open = text.find('(', begin);
    if (open == std::string::npos) return text.size();
    return after(")" + text.substr(begin + 2, open - begin - 2) + "\"", open);
  }
  const char quote = text[begin];
  const bool digit_separator = quote == '\'' && begin > 0 && is_word(text[begin - 1]);
  if ((quote != '"' && quote != '\'') || digit_separator) return begin;
  size_t end = begin + 1;
  while (end < text.size() && text[end] != quote && text[end] != '\n')
    end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// Calls `visit(begin, end)` for each literal and comment, in order.
void for_each_quoted(const std::string& text, const std::function<void(size_t, size_t)>& visit) {
  for (size_t i = 0; i < text.size();) {
    const size_t end = end_of_quoted(text, i);
    if (end > i) visit(i, end);
    i = std::max(end, i + 1);
  }
}

// Spaces in [begin, end), where the ends of lines stay.
void blank(std::string& text, size_t begin, size_t end) {
  for (; begin < end; ++begin)
    if (text[begin] != '\n') text[begin] = ' ';
}

// The literals from `at` on, joined, up to the first comma or bracket; moves `at` to that.
std::string joined_literals(const std::string& text, const std::string& code, size_t& at) {
  std::string all;
  while ((at = code.find_first_of("\",)", at)) != std::string::npos && code[at] == '"') {
    const size_t end = code.find('"', at + 1);
    all += text.substr(at + 1, end - at - 1);
    at = end + 1;
  }
  return all;
}

}  // namespace

std::string read_source(const std::string& path) {
  std::ifstream in(std::string(ZEROLAB_SOURCE_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<File> files_below(const std::vector<std::string>& folders,
                              const std::set<std::string>& extensions) {
  namespace fs = std::filesystem;
  const fs::path root = ZEROLAB_SOURCE_DIR;
  std::vector<File> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (entry.is_regular_file() &&
          (extensions.empty() || extensions.contains(entry.path().extension())))
        files.push_back({path, read_source(path)});
    }
  }
  std::ranges::sort(files, {}, &File::path);
  return files;
}

std::vector<File> source_files() {
  return files_below({"tensor", "autograd", "nn", "optim", "dist", "stages", "tutorials", "tests"},
                     {".h", ".cpp", ".cu", ".cuh"});
}

bool is_test(const File& file) { return file.path.starts_with("tests/"); }

bool is_header(const File& file) {
  return file.path.ends_with(".h") || file.path.ends_with(".cuh");
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string code_only(const std::string& text) {
  std::string code = text;
  for_each_quoted(text, [&](size_t begin, size_t end) {
    const bool literal = text[begin] != '/';  // its quotes stay
    blank(code, begin + literal, end - literal);
  });
  return code;
}

std::string comments_only(const std::string& text) {
  std::string comments = text;
  size_t rest = 0;
  for_each_quoted(text, [&](size_t begin, size_t end) {
    if (text[begin] != '/') return;
    blank(comments, rest, begin);
    rest = end;
  });
  blank(comments, rest, text.size());
  return comments;
}

std::vector<bool> raw_string_lines(const std::string& text) {
  std::vector<bool> inside(split_lines(text).size(), false);
  const auto line_of = [&](size_t at) {
    return std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  };
  for_each_quoted(text, [&](size_t begin, size_t end) {
    if (!raw_string_at(text, begin)) return;
    std::fill(inside.begin() + line_of(begin), inside.begin() + line_of(end - 1) + 1, true);
  });
  return inside;
}

std::string finding(const File& file, int line, const std::string& rule) {
  return file.path + ":" + std::to_string(line) + ": " + rule;
}

std::string findings_of(std::vector<std::string> (*check)(const File&)) {
  std::string all;
  for (const File& file : source_files()) all += joined(check(file));
  return all;
}

std::string joined(const std::vector<std::string>& findings) {
  std::string all;
  for (const std::string& one : findings) all += one + "\n";
  return all;
}

std::vector<TestCase> test_cases(const File& file) {
  static const std::regex start("(TEMPLATE_)?TEST_CASE\\(");
  const std::string code = code_only(file.text);  // quotes stay, what they enclose is blank
  std::vector<TestCase> cases;
  for (std::sregex_iterator it(code.begin(), code.end(), start), end; it != end; ++it) {
    const auto line = std::count(code.begin(), code.begin() + it->position(), '\n') + 1;
    auto at = static_cast<size_t>(it->position() + it->length());
    TestCase one{static_cast<int>(line), joined_literals(file.text, code, at), ""};
    if (at != std::string::npos && code[at] == ',')
      one.tags = joined_literals(file.text, code, ++at);
    cases.push_back(one);
  }
  return cases;
}

}  // namespace architecture
