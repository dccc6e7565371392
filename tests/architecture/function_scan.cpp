#include <cctype>
#include <set>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

struct Token {
  std::string text;  // a name with its qualifiers ("A::~A", "public:"), or one other character
  int line;
};
using Tokens = std::vector<Token>;

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '~' || c == ':';
}

// Without comments, what strings hold, and preprocessor lines with their continuations.
Tokens tokens_of(const std::string& text) {
  Tokens tokens;
  bool directive = false;
  int number = 0;
  for (const std::string& line : split_lines(code_only(text))) {
    ++number;
    const size_t first = line.find_first_not_of(" \t");
    directive = directive || (first != std::string::npos && line[first] == '#');
    for (size_t i = 0, end; !directive && i < line.size(); i = end) {
      for (end = i + 1; end < line.size() && in_name(line[i]) && in_name(line[end]);) ++end;
      if (std::isspace(static_cast<unsigned char>(line[i])) == 0)
        tokens.push_back({line.substr(i, end - i), number});
    }
    directive = directive && line.ends_with('\\');
  }
  return tokens;
}

bool is_one_of(const std::string& token, const char* characters) {
  return token.size() == 1 && std::string(characters).find(token) != std::string::npos;
}

// One past the bracket that closes the one at `open`, or the '>' that ends template arguments.
// `open`
// + 1 if there is none: '<' is then an operator.
size_t after(const Tokens& code, size_t open) {
  const bool angle = code[open].text == "<";
  if (!angle && !is_one_of(code[open].text, "({[")) return open + 1;
  int depth = 0;
  for (size_t i = open; i < code.size() && !(angle && is_one_of(code[i].text, ";)")); ++i) {
    if (angle && is_one_of(code[i].text, "({[")) i = after(code, i) - 1;
    const std::string& token = code[i].text;
    depth += is_one_of(token, angle ? "<" : "({[");
    if (is_one_of(token, angle ? ">" : ")}]") && (!angle || code[i - 1].text != "-") &&
        --depth == 0)
      return i + 1;
  }
  return angle ? open + 1 : code.size();
}

// Does the statement at `i` open a namespace, class, enum or extern block?
bool opens_scope(const Tokens& code, size_t i) {
  static const std::set<std::string> scopes = {"namespace", "class", "struct",
                                               "union",     "enum",  "extern"};
  static const std::set<std::string> before = {"inline",    "typedef", "static",
                                               "constexpr", "const",   "export"};
  while (code[i].text == "template" || before.contains(code[i].text))
    i = code[i].text == "template" ? after(code, i + 1) : i + 1;
  return scopes.contains(code[i].text);
}

int count_parameters(const Tokens& code, size_t open) {
  const size_t end = after(code, open) - 1;
  if (end == open + 1 || (end == open + 2 && code[open + 1].text == "void")) return 0;
  int commas = 0;
  for (size_t i = open + 1; i < end; i = after(code, i)) commas += code[i].text == ",";
  return commas + 1;
}

// The '(' that opens the parameters of the function declared in [begin, end), or `end`.
size_t parameter_list(const Tokens& code, size_t begin, size_t end) {
  static const std::set<std::string> not_names = {"alignas",       "decltype", "noexcept",
                                                  "requires",      "explicit", "static_assert",
                                                  "__attribute__", "return"};
  for (size_t i = begin; i < end;) {
    const std::string& token = code[i].text;
    if (token == "operator" || token.ends_with("::operator")) {
      while (i < end && code[i].text != "(") ++i;
      const size_t next = i < end ? after(code, i) : end;  // operator()(…) has two pairs
      return next < end && code[next].text == "(" ? next : i;
    }
    if (token == "=" || token == ";") return end;  // a variable: what follows is its value
    if (in_name(token[0]) && i + 1 < end && code[i + 1].text == "(") {
      if (!not_names.contains(token) && !token.starts_with("NLOHMANN_DEFINE_")) return i + 1;
      i = after(code, i + 1);  // NLOHMANN_DEFINE_… names members
    } else {
      i = token == "<" ? after(code, i) : i + 1;
    }
  }
  return end;
}

}  // namespace

std::vector<Function> functions(const std::string& text) {
  const Tokens code = tokens_of(text);
  std::vector<Function> found;
  const auto add = [&](size_t begin, size_t end, bool defined) {
    const size_t open = parameter_list(code, begin, end);
    if (open == end) return;
    const std::string& name = code[open - 1].text;
    const int first = code[begin].line, lines = code[end - 1].line - first + 1;
    found.push_back({in_name(name[0]) ? name : "operator", first, defined ? lines : 0,
                     count_parameters(code, open)});
  };
  for (size_t i = 0, begin = 0; i < code.size();) {  // begin: of the statement
    const std::string& token = code[i].text;
    bool ended = true;
    if (is_one_of(token, "([") || (token == "{" && !opens_scope(code, begin))) {
      i = after(code, i);
      // A brace before ',' or '{' belongs to a member's initialiser, one before ';' to a value.
      ended = token == "{" && (i == code.size() || !is_one_of(code[i].text, ",{;"));
      if (ended) add(begin, i, true);
    } else {
      if (token == ";") add(begin, i, false);
      ended = is_one_of(token, "{;}") || token == "public:" || token == "protected:" ||
              token == "private:";
      ++i;
    }
    if (ended) begin = i;
  }
  return found;
}

}  // namespace architecture
