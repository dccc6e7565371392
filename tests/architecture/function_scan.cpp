#include "tests/architecture/function_scan.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// One past the bracket that closes the one at `open`.
size_t after_closing(const std::string& code, size_t open) {
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    if (code[i] == '(' || code[i] == '{' || code[i] == '[') ++depth;
    if (code[i] == ')' || code[i] == '}' || code[i] == ']') --depth;
    if (depth == 0) return i + 1;
  }
  return code.size();
}

// One past the '>' of a template argument list, or `open` + 1 if it is an operator.
size_t after_angle(const std::string& code, size_t open) {
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    if (code[i] == '(' || code[i] == '{' || code[i] == '[') {
      i = after_closing(code, i) - 1;
    } else if (code[i] == '<') {
      ++depth;
    } else if (code[i] == '>' && code[i - 1] != '-' && --depth == 0) {
      return i + 1;
    } else if (code[i] == ';' || code[i] == ')') {
      break;
    }
  }
  return open + 1;
}

size_t skip_space(const std::string& code, size_t i) {
  while (i < code.size() && is_space(code[i])) ++i;
  return i;
}

std::string word_at(const std::string& code, size_t i) {
  size_t end = i;
  while (end < code.size() && is_word(code[end])) ++end;
  return code.substr(i, end - i);
}

// Preprocessor lines, with their continuations, as spaces.
std::string without_directives(std::string code) {
  bool inside = false, at_start = true;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == '\n') {
      inside = inside && i > 0 && code[i - 1] == '\\';
      at_start = true;
      continue;
    }
    if (at_start && code[i] == '#') inside = true;
    if (!is_space(code[i])) at_start = false;
    if (inside && code[i] != '\\') code[i] = ' ';
    if (inside && code[i] == '\\' && i + 1 < code.size() && code[i + 1] != '\n') code[i] = ' ';
  }
  std::replace(code.begin(), code.end(), '\\', ' ');
  return code;
}

// Does the statement at `begin` open a namespace, class, enum or extern block?
bool opens_scope(const std::string& code, size_t begin) {
  static const std::set<std::string> scopes = {"namespace", "class", "struct",
                                               "union",     "enum",  "extern"};
  static const std::set<std::string> before = {"inline",    "typedef", "static",
                                               "constexpr", "const",   "export"};
  size_t i = begin;
  for (;;) {
    i = skip_space(code, i);
    const std::string word = word_at(code, i);
    if (word == "template") {
      i = after_angle(code, skip_space(code, i + word.size()));
    } else if (before.count(word) != 0) {
      i += word.size();
    } else {
      return scopes.count(word) != 0;
    }
  }
}

int count_parameters(const std::string& code, size_t open) {
  const size_t end = after_closing(code, open) - 1;
  size_t i = skip_space(code, open + 1);
  if (i >= end || (word_at(code, i) == "void" && skip_space(code, i + 4) >= end)) return 0;
  int count = 1;
  while (i < end) {
    if (code[i] == '(' || code[i] == '{' || code[i] == '[') {
      i = after_closing(code, i);
    } else if (code[i] == '<') {
      i = after_angle(code, i);
    } else {
      count += code[i] == ',' ? 1 : 0;
      ++i;
    }
  }
  return count;
}

// The '(' that opens the parameters of the function declared in [begin, end), or npos.
size_t parameter_list(const std::string& code, size_t begin, size_t end) {
  static const std::set<std::string> not_names = {"alignas",       "decltype", "noexcept",
                                                  "requires",      "explicit", "static_assert",
                                                  "__attribute__", "return"};
  for (size_t i = begin; i < end;) {
    const std::string word = is_word(code[i]) ? word_at(code, i) : "";
    if (word == "operator") {
      i = code.find('(', i + 8);
      if (i == std::string::npos || i >= end) return std::string::npos;
      const size_t next = skip_space(code, after_closing(code, i));  // operator()(…) has two pairs
      return next < end && code[next] == '(' ? next : i;
    }
    if (!word.empty()) {
      i += word.size();
      const size_t open = skip_space(code, i);
      if (open >= end || code[open] != '(') continue;
      if (not_names.count(word) == 0) return open;
      i = after_closing(code, open);
    } else if (code[i] == '<') {
      i = after_angle(code, i);
    } else if (code[i] == '=' || code[i] == ';') {
      return std::string::npos;  // a variable: what follows is its value
    } else {
      ++i;
    }
  }
  return std::string::npos;
}

bool is_access_specifier(const std::string& word) {
  return word == "public" || word == "protected" || word == "private";
}

std::string name_before(const std::string& code, size_t open) {
  size_t end = open;
  while (end > 0 && is_space(code[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 &&
         (is_word(code[begin - 1]) || code[begin - 1] == '~' || code[begin - 1] == ':'))
    --begin;
  return begin == end ? "operator" : code.substr(begin, end - begin);
}

}  // namespace

std::vector<Function> functions(const std::string& text) {
  const std::string code = without_directives(code_only(text));
  const auto line_of = [&](size_t i) {
    return static_cast<int>(
               std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(i), '\n')) +
           1;
  };
  std::vector<Function> found;
  const auto add = [&](size_t begin, size_t end, bool defined) {
    const size_t open = parameter_list(code, begin, end);
    if (open == std::string::npos) return;
    const int first = line_of(begin);
    const int lines = defined ? line_of(end - 1) - first + 1 : 0;
    found.push_back({name_before(code, open), first, lines, count_parameters(code, open)});
  };
  for (size_t i = skip_space(code, 0), begin = i; i < code.size();) {  // begin: of the statement
    bool ended = false;
    if (code[i] == '{' && opens_scope(code, begin)) {
      ++i, ended = true;
    } else if (code[i] == '{') {
      i = after_closing(code, i);
      const size_t next = skip_space(code, i);
      // A brace before ',' or '{' belongs to a member's initialiser, one before ';' to a value.
      ended = next >= code.size() || (code[next] != ',' && code[next] != '{' && code[next] != ';');
      if (ended) add(begin, i, true);
    } else if (code[i] == '(' || code[i] == '[') {
      i = after_closing(code, i);
    } else if (code[i] == ';' || code[i] == '}') {
      if (code[i] == ';') add(begin, i, false);
      ++i, ended = true;
    } else {
      ended = code[i] == ':' && is_access_specifier(code.substr(begin, i - begin));
      ++i;
    }
    if (ended) begin = i = skip_space(code, i);
  }
  return found;
}

}  // namespace architecture
