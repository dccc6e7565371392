#include "tutorials/exercises/grader/rules/declarations.h"

#include <cctype>
#include <vector>

#include "tutorials/exercises/grader/rules/cpp_tokens.h"

namespace zl::exercises {
namespace {

// After these words comes an expression: a name that follows is not declared there.
const std::set<std::string> kBeforeExpressions = {"return", "throw", "else", "case", "do",  "new",
                                                  "delete", "and",   "or",   "not",  "goto"};
const std::set<std::string> kBeforeScopes = {"struct", "class", "union", "enum", "namespace"};

bool in_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// "zl::A<int>::f(int)" -> zl, A, f; "zl::A::" -> zl, A, "".
std::vector<std::string> components(const std::string& name) {
  std::vector<std::string> all(1);
  int depth = 0;  // of template arguments
  for (const char c : name) {
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (depth != 0 || c == '>') continue;
    if (c == '(') break;
    if (in_identifier(c))
      all.back() += c;
    else if (c == ':' && !all.back().empty())
      all.emplace_back();
    else if (!all.back().empty())
      break;  // "operator==", "f[abi:cxx11]"
  }
  return all;
}

}  // namespace

Declarations::Declarations(const std::string& text) {
  const std::vector<Token> tokens = tokens_of(text);
  for (size_t i = 1; i + 1 < tokens.size(); ++i) {
    if (tokens[i].kind != TokenKind::word) continue;
    const Token &before = tokens[i - 1], &after = tokens[i + 1];
    const bool follows_word =
        before.kind == TokenKind::word && kBeforeExpressions.count(before.text) == 0;
    const bool qualified = before.text == ":" && i > 1 && tokens[i - 2].text == ":";
    if (kBeforeScopes.count(before.text) != 0 || (qualified && after.text == "{"))
      scopes_.insert(tokens[i].text);
    if (follows_word || before.text == ">" || before.text == "&" || before.text == "*")
      functions_.insert(tokens[i].text);
  }
}

bool Declarations::may_define(const std::string& name) const {
  const std::vector<std::string> all = components(name);
  for (size_t k = 0; k + 1 < all.size(); ++k)
    if (scopes_.count(all[k]) == 0) return false;
  const std::string& function = all.back();
  const bool constructor = function.empty() || (all.size() > 1 && function == all[all.size() - 2]);
  return constructor || functions_.count(function) != 0;
}

}  // namespace zl::exercises
