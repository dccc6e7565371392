#include "tutorials/exercises/grader/rules/source_rules.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <set>

#include "tensor/error.h"
#include "tutorials/exercises/grader/rules/cpp_tokens.h"

namespace zl::exercises {
namespace {

// Of C++, and without files, threads and processes.
const std::set<std::string> kHeaders = {"algorithm",     "any",           "array",
                                        "bit",           "bitset",        "cassert",
                                        "cfloat",        "climits",       "cmath",
                                        "compare",       "cstdlib",       "complex",
                                        "concepts",      "cstddef",       "cstdint",
                                        "cstdio",        "cstring",       "deque",
                                        "exception",     "functional",    "initializer_list",
                                        "iterator",      "limits",        "list",
                                        "map",           "memory",        "new",
                                        "numbers",       "numeric",       "optional",
                                        "queue",         "ranges",        "set",
                                        "span",          "sstream",       "stack",
                                        "stdexcept",     "string",        "string_view",
                                        "tuple",         "type_traits",   "typeinfo",
                                        "unordered_map", "unordered_set", "utility",
                                        "variant",       "vector"};

// Words that no solution needs, and why.
const std::map<std::string, const char*> kWords = {
    {"asm", "no assembler"},
    {"const_cast", "what is const stays const"},
    {"reinterpret_cast", "use the functions of the library for the values of a tensor"},
    {"extern", "include the header that declares a function instead"},
    {"goto", "use a loop or a function"},
    {"thread_local", "keep values in members or local variables"},
};

// Members of classes of ours by which a file could change or go around what the checks measure.
const std::map<std::string, const char*> kMembers = {
    {"ledger", "the checks count memory in it"},
    {"events", "the checks count memory in them"},
    {"backend", "use tensors and the functions of tensor/kernels.h, which are counted"},
    {"fail_at", "it is for tests"},
    {"all_gather_object", "it is not counted; use the collectives for tensors"},
};
// Fields of a FILE, of glibc.
const std::set<std::string> kFileFields = {"_fileno", "_flags",  "_flags2", "_chain",   "_lock",
                                           "_offset", "_unused", "_mode",   "_unused2", "_codecvt"};
constexpr int kMostLines = 80, kDeepest = 200;
constexpr size_t kLongestDirective = 200;

const std::set<std::string> kAttributes = {"nodiscard", "maybe_unused", "likely",    "unlikely",
                                           "noreturn",  "fallthrough",  "deprecated"};
const std::set<std::string> kPredefined = {"__func__", "__LINE__", "__FILE__"};

std::string list_of(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "\"" : ", \"") + name + "\"";
  return all;
}

class SourceRules {
 public:
  SourceRules(const Exercise& exercise, const std::string& text)
      : exercise_(exercise), text_(text), tokens_(tokens_of(text)) {}

  std::string violations() {
    bytes();
    if (found_.empty()) words();  // else the compiler's words may be others
    std::string all;
    for (const auto& [line, message] : found_)
      all += (all.empty() ? "line " : "\nline ") + std::to_string(line) + ": " + message;
    return all;
  }

 private:
  template <class... Args>
  void refuse(int line, const Args&... message) {
    found_.emplace(line, str(message...));
  }
  // The text of token i + ahead, "" outside.
  const std::string& at(size_t i, int ahead = 0) const {
    static const std::string none;
    const int64_t k = int64_t(i) + ahead;
    return k >= 0 && k < int64_t(tokens_.size()) ? tokens_[size_t(k)].text : none;
  }

  void words() {
    length();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (token.kind == TokenKind::directive) directive(token);
      if (token.kind == TokenKind::word) word(i);
      if (token.kind == TokenKind::punctuation) punctuation(i);
      if (token.kind == TokenKind::unclosed)
        refuse(token.line, "a string, character or comment that is not closed");
    }
  }

  // What a compiler could take for the end of a line, or for nothing.
  void bytes() {
    int line = 1;
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      const bool ends_line = c == '\r' && i + 1 < text_.size() && text_[i + 1] == '\n';
      if (std::iscntrl(static_cast<unsigned char>(c)) && c != '\n' && c != '\t' && !ends_line)
        return refuse(line, "the control character of byte ", int(c), ": ",
                      c == '\0'   ? "save the file as UTF-8, not UTF-16"
                      : c == '\r' ? "lines must end with LF or CR LF"
                                  : "remove it, or write it as \\x… in a string");
      if (c != '\n') continue;
      const size_t last = i == 0 ? std::string::npos : text_.find_last_not_of(" \t\r", i - 1);
      if (last != std::string::npos && text_[last] == '\\')
        refuse(line,
               "a backslash at the end of a line, which joins it with the next one, in a "
               "comment too: remove it");
      ++line;
    }
  }

  void length() {
    int lines = 0, last = 0, first_too_many = 0;
    for (const Token& token : tokens_) {
      if (token.line == last) continue;
      last = token.line;
      if (++lines == kMostLines + 1) first_too_many = last;
    }
    if (lines > kMostLines)
      refuse(first_too_many, "the file has ", lines, " lines of code, may have ", kMostLines,
             " (comments and empty lines do not count)");
  }

  void directive(const Token& token) {
    static const std::regex include("#\\s*include\\s*([<\"])([^>\"]*)[>\"]\\s*"),
        once("#\\s*pragma\\s+once\\s*");
    std::smatch match;
    const std::string& text = token.text;
    // Matching takes stack for each character.
    const bool is_short = text.size() <= kLongestDirective;
    if (is_short && std::regex_match(text, once)) return;
    if (!is_short || !std::regex_match(text, match, include))
      return refuse(token.line, "'", text.substr(0, 40),
                    "': the only lines with # are #include <…> and #include \"…\". "
                    "For a constant write: constexpr int name = 3;");
    const std::string header = match[2];
    if (match[1] == "<") {
      if (kHeaders.count(header) != 0) return;
      const bool prints = header.ends_with("stream") || header == "iomanip" || header == "stdio.h";
      refuse(token.line, "<", header, "> is not among the headers for an exercise",
             prints ? "; to print, use std::fprintf(stderr, …) of <cstdio>" : "");
    } else if (std::find(exercise_.headers.begin(), exercise_.headers.end(), header) ==
               exercise_.headers.end()) {
      refuse(token.line, "\"", header,
             "\" is not among the headers of this exercise: ", list_of(exercise_.headers));
    }
  }

  void word(size_t i) {
    const auto& [kind, text, line] = tokens_[i];
    const std::string &before = at(i, -1), &next = at(i, 1);
    const auto known = kWords.find(text);
    if (known != kWords.end()) refuse(line, "'", text, "': ", known->second);
    const bool reserved =
        text.starts_with("__") || (text.size() > 1 && text[0] == '_' && std::isupper(text[1]));
    if (reserved && kPredefined.count(text) == 0)
      refuse(line, "'", text, "': names that begin like this are the compiler's; take another");
    members(i);
    names_of_others(i);
    if (text == "main" && next == "(")
      refuse(line, "'main': the checks have it; the file defines only what the task says");
    if (text == "namespace" && next == "std" && before != "using")
      refuse(line, "'namespace std': put names of yours into an anonymous namespace");
    if ((text == "struct" || text == "class") && (next == "std" || next == ":"))
      refuse(line, "'", text, "' of std: do not change classes of the C++ library");
    if (text == "template" && before != "." && before != ":" && before != ">") {
      if (next != "<")
        refuse(line, "an explicit instantiation: use the template, and the compiler makes it");
      else if (at(i, 2) == ">")
        refuse(line, "an explicit specialisation: overload the function, or use 'if constexpr'");
    }
  }

  void members(size_t i) {
    const auto& [kind, text, line] = tokens_[i];
    const std::string &before = at(i, -1), &next = at(i, 1);
    const auto known = kMembers.find(text);
    if (known != kMembers.end())
      refuse(line, "'", text, "' of a class of the library: ", known->second,
             ". If you mean a name of yours, give it another name");
    // The logarithm is a function with an argument.
    const bool of_std = before == ":" && at(i, -3) == "std";
    const bool of_class = before == "." || before == ":" || (before == ">" && at(i, -2) == "-");
    if (text == "log" && !of_std && (of_class || next != "(" || at(i, 2) == ")"))
      refuse(line,
             "'log' of a class of the library: the checks count communication in it. If you mean "
             "a name of yours, give it another name");
    if (text.size() > 1 && text.back() == '_' && before == ":" && at(i, -2) == ":")
      refuse(line, "'", text, "' is private: use the public functions of its class");
  }

  // Names that a file may use in one way only.
  void names_of_others(size_t i) {
    const auto& [kind, text, line] = tokens_[i];
    const std::string &before = at(i, -1), &next = at(i, 1);
    if (text == "std" && before != "namespace" && before != "class" &&
        !(next == ":" && at(i, 2) == ":"))
      refuse(line, "'std' is the C++ library only");
    if ((text == "stdout" || text == "stderr" || text == "stdin") &&
        (before == "*" || (next != "," && next != ")")))
      refuse(line, "'", text, "': only pass it to a function that prints");
    if (kFileFields.count(text) != 0) refuse(line, "'", text, "': it is a field of FILE");
    if (std::any_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }))
      refuse(line, "'", text, "': write names in letters of ASCII");
  }

  void punctuation(size_t i) {
    const int line = tokens_[i].line;
    const std::string &text = at(i), &next = at(i, 1);
    if (text == "\\") refuse(line, "a backslash outside a string");
    if (text == "$" || text == "@" || text == "`") refuse(line, "'", text, "' outside a string");
    if (text == "#") refuse(line, "'#' in the middle of a line");
    const bool digraph = (text == "%" && (next == ":" || next == ">")) ||
                         (text == "<" && next == "%") || (text == ":" && next == ">") ||
                         (text == "<" && next == ":" && at(i, 2) != ":");
    if (digraph) refuse(line, "'", text, next, "' is a digraph: write # [ ] { or }");
    if (text == "[" && next == "[") attributes(i + 2);
    if (text == "(" || text == "[" || text == "{") ++depth_;
    if (text == ")" || text == "]" || text == "}") --depth_;
    if (depth_ == kDeepest + 1 && depth_ > deepest_)
      refuse(line, "more than ", kDeepest,
             " brackets inside each other: the compiler would need "
             "minutes");
    deepest_ = std::max(deepest_, depth_);
  }

  void attributes(size_t i) {
    for (; i < tokens_.size() && at(i) != "]"; ++i) {
      if (tokens_[i].kind == TokenKind::word && kAttributes.count(at(i)) == 0)
        return refuse(tokens_[i].line, "[[", at(i),
                      "]] is not among the attributes for an exercise");
    }
  }

  const Exercise& exercise_;
  const std::string& text_;
  std::vector<Token> tokens_;
  int depth_ = 0, deepest_ = 0;            // of brackets
  std::multimap<int, std::string> found_;  // by line
};

}  // namespace

std::string source_violations(const Exercise& exercise, const std::string& text) {
  return SourceRules(exercise, text).violations();
}

}  // namespace zl::exercises
