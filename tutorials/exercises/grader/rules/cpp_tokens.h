// C++ as tokens: enough to see which words a file uses, and where.
#pragma once

#include <string>
#include <vector>

namespace zl::exercises {

enum class TokenKind { word, number, text, punctuation, directive, unclosed };

struct Token {
  TokenKind kind = TokenKind::punctuation;
  // One character of punctuation; the whole line, without comments, of a directive, as in
  // "#include <a>"; "" for strings, characters, and what is not closed.
  std::string text;
  int line = 1;
};

// Without comments. A string, character or comment without an end is one token, `unclosed`. A line
// that ends with a backslash is not joined with the next one, and digraphs are not replaced: the
// rules refuse both.
std::vector<Token> tokens_of(const std::string& text);

}  // namespace zl::exercises
