#include "tutorials/exercises/grader/rules/cpp_tokens.h"

#include <algorithm>
#include <cctype>

namespace zl::exercises {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
}
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

constexpr size_t kNone = std::string::npos;

class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) {}

  std::vector<Token> all() {
    while (at_ < text_.size()) next();
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool sees(const char* what) const {
    return text_.compare(at_, std::string(what).size(), what) == 0;
  }
  // Moves on to `end`, and counts lines.
  std::string take_to(size_t end) {
    end = std::min(end, text_.size());
    const std::string taken = text_.substr(at_, end - at_);
    line_ += int(std::count(taken.begin(), taken.end(), '\n'));
    at_ = end;
    return taken;
  }
  // Behind the next `what`; kNone if there is none.
  size_t after(const std::string& what, size_t from) const {
    const size_t found = text_.find(what, from);
    return found == kNone ? kNone : found + what.size();
  }
  void add(TokenKind kind, const std::string& text, int line) {
    tokens_.push_back({kind, text, line});
    line_is_empty_ = false;
  }

  void next() {
    const char c = peek();
    if (c == '\n') line_is_empty_ = true;
    if (is_space(c))
      take_to(at_ + 1);
    else if (skip_comment())
      return;
    else if (c == '#' && line_is_empty_)
      directive();
    else if (c == '"' || c == '\'')
      literal(c, false);
    else if (is_digit(c) || (c == '.' && is_digit(peek(1))))
      number();
    else if (in_word(c))
      word();
    else
      add(TokenKind::punctuation, take_to(at_ + 1), line_);
  }

  bool skip_comment() {
    if (sees("//"))
      take_to(text_.find('\n', at_));
    else if (sees("/*")) {
      const int line = line_;
      const size_t end = after("*/", at_ + 2);
      if (end == kNone) add(TokenKind::unclosed, "", line);
      take_to(end);
    } else
      return false;
    return true;
  }

  // Up to the end of the line; a comment in it may have several lines.
  void directive() {
    const int line = line_;
    std::string text;
    while (at_ < text_.size() && peek() != '\n') {
      if (skip_comment())
        text += ' ';
      else
        text += take_to(at_ + 1);
    }
    add(TokenKind::directive, text, line);
  }

  void literal(char quote, bool raw) {
    const int line = line_;
    const size_t begin = at_;
    size_t end = begin + 1;
    if (raw) {  // R"x( … )x"
      const size_t open = std::min(text_.find('(', begin), text_.size());
      end = after(")" + text_.substr(begin + 1, open - begin - 1) + "\"", open);
    } else {
      while (end < text_.size() && text_[end] != quote && text_[end] != '\n')
        end += text_[end] == '\\' ? 2 : 1;
      end = end < text_.size() && text_[end] == quote ? end + 1 : kNone;
    }
    add(end == kNone ? TokenKind::unclosed : TokenKind::text, "", line);
    take_to(end);
    while (at_ < text_.size() && in_word(peek()) && (peek() & 0x80) == 0)
      take_to(at_ + 1);  // a suffix, as in "x"s
  }

  // A preprocessing number: 1'000, 0x1p-3, 1e+5f.
  void number() {
    size_t end = at_ + 1;
    for (; end < text_.size(); ++end) {
      const char c = text_[end], before = char(std::tolower(text_[end - 1]));
      const bool sign = (c == '+' || c == '-') && (before == 'e' || before == 'p');
      const bool separator = c == '\'' && end + 1 < text_.size() && in_word(text_[end + 1]);
      if (!in_word(c) && c != '.' && !sign && !separator) break;
    }
    const int line = line_;
    add(TokenKind::number, take_to(end), line);
  }

  void word() {
    size_t end = at_;
    while (end < text_.size() && in_word(text_[end])) ++end;
    const std::string word = take_to(end);
    const char quote = peek();
    const auto is = [&](std::initializer_list<const char*> all) {
      return std::find(all.begin(), all.end(), word) != all.end();
    };
    if (quote == '"' && is({"R", "LR", "uR", "UR", "u8R"}))
      literal(quote, true);
    else if ((quote == '"' || quote == '\'') && is({"L", "u", "U", "u8"}))
      literal(quote, false);
    else
      add(TokenKind::word, word, line_);
  }

  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_is_empty_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(const std::string& text) { return Scanner(text).all(); }

}  // namespace zl::exercises
