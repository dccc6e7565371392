#include "stages/deepspeed/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>

#include "tensor/error.h"
#include "tensor/printable.h"

namespace zl {
namespace {

constexpr auto npos = std::string_view::npos;
constexpr std::string_view kSpace = " \t\r\n", kBrackets = "{}[],:";
constexpr std::string_view kEndOfWord = " \t\r\n{}[],:\"";
using Kind = JsonValue::Kind;

int line_at(std::string_view text, size_t at) {
  return 1 + int(std::count(text.begin(), text.begin() + long(at), '\n'));
}

// The end of the comment that starts at `at`; `at` if none does.
size_t end_of_comment(std::string_view text, size_t at, const std::string& name) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//") || rest[0] == '#') return std::min(text.find('\n', at), text.size());
  if (!rest.starts_with("/*")) return at;
  const size_t end = text.find("*/", at + 2);
  require_input(end != npos, name, ":", line_at(text, at),
                ": this comment has no end: */ is missing");
  return end + 2;
}

// The end of the string that starts at `at`, or of the line that it does not end on.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at) at += text[at] == '\\';
  return std::min(at + 1, text.size());
}

// The text as plain JSON: comments and trailing commas become spaces, line breaks stay.
std::string plain_json(std::string text, const std::string& name) {
  if (text.starts_with("\xEF\xBB\xBF")) text.replace(0, 3, 3, ' ');  // a byte order mark
  size_t comma = npos;  // of a comma after a value that only space has followed so far
  char last = ',';      // the last character that is not space
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = end_of_comment(text, at, name);
    for (size_t i = at; i < end; ++i) text[i] = text[i] == '\n' ? '\n' : ' ';
    if (end > at) continue;
    end = text[at] == '"' ? end_of_string(text, at) : at + 1;
    if (kSpace.find(text[at]) != npos) continue;
    if (comma != npos && (text[at] == '}' || text[at] == ']')) text[comma] = ' ';
    comma = text[at] == ',' && std::string_view(",:{[").find(last) == npos ? at : npos;
    last = text[at];
  }
  return text;
}

// Builds a value from the events of the library's parser.
class Builder {
 public:
  Builder(const std::string& text, const std::string& name, int set)
      : text_(text), name_(name), set_(set), in_(text) {}

  JsonValue build() {
    nlohmann::json::sax_parse(in_, this);
    return std::move(root_);
  }

  bool null() { return add({}); }
  bool boolean(bool value) { return add({.kind = Kind::boolean, .boolean = value}); }
  bool number_integer(int64_t value) { return number_float(double(value), std::to_string(value)); }
  bool number_unsigned(uint64_t value) {
    return number_float(double(value), std::to_string(value));
  }
  bool number_float(double value, const std::string& text) {
    return add({.kind = Kind::number, .number = value, .text = text});
  }
  bool string(const std::string& text) { return add({.kind = Kind::string, .text = text}); }
  bool binary(const nlohmann::json::binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return open(Kind::object); }
  bool start_array(size_t) { return open(Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(const std::string& key) {
    Open& object = open_.back();
    object.key = key;
    object.key_line = line();
    const auto [first, is_new] = object.lines.emplace(key, object.key_line);
    require_input(is_new, name_, ":", object.key_line, ": duplicate key ", in_quotes(key),
                  "; the first is in line ", first->second);
    return true;
  }

  // `position`: the number of characters read.
  [[noreturn]] bool parse_error(size_t position, const std::string&,
                                const nlohmann::json::exception& e) {
    const std::string_view what = e.what();
    size_t begin = std::min(position, text_.size()) - 1;
    const int line = line_at(text_, begin);
    // A bracket that is not expected is a word; otherwise the library stopped inside the word.
    const bool bracket = kBrackets.find(text_[begin]) != npos && what.find("unexpected") != npos;
    while (!bracket && begin > 0 && kEndOfWord.find(text_[begin - 1]) == npos) --begin;
    const size_t end = std::min(text_.find_first_of(kEndOfWord, begin), text_.size());
    const std::string word(text_.substr(begin, std::max<size_t>(end - begin, 1)));
    throw InputError(str(name_, ":", line, ": ", problem(what, word)));
  }

 private:
  // An array or object that has not ended.
  struct Open {
    JsonValue* value;
    std::string key = {};  // the last one of an object
    int key_line = 0;
    std::unordered_map<std::string, int> lines = {};  // of the keys
  };

  JsonValue& append(JsonValue value) {
    value.line = line(), value.set = set_;
    if (open_.empty()) return root_ = std::move(value);
    Open& in = open_.back();
    if (in.value->kind == Kind::array) {
      in.value->items.push_back(std::move(value));
      return in.value->items.back();
    }
    value.line = in.key_line;
    in.value->members.push_back({in.key, std::move(value)});
    return in.value->members.back().value;
  }

  bool add(JsonValue value) {
    append(std::move(value));
    return true;
  }

  bool open(Kind kind) {
    require_input(open_.size() < kJsonDepth, name_, ":", line(), ": more than ", kJsonDepth,
                  " brackets are open here; a configuration needs 5");
    open_.push_back({&append({.kind = kind})});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  // The line of the last character that the parser has read.
  int line() {
    const auto at = size_t(in_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in));
    line_ += int(std::count(text_.begin() + long(counted_), text_.begin() + long(at), '\n'));
    counted_ = at;
    return line_;
  }

  // One sentence, from what the library says about the grammar.
  std::string problem(std::string_view what, const std::string& word) const {
    const auto says = [&](const char* part) { return what.find(part) != npos; };
    if (says("invalid string"))
      return "this string does not end on its line, or has a wrong escape (\\), a control "
             "character or bytes that are not UTF-8";
    if (says("number overflow")) return in_quotes(word) + " is too large for a number";
    const bool object = !open_.empty() && open_.back().value->kind == Kind::object;
    const std::string opened = open_.empty()
                                   ? ""
                                   : str(object ? "the object" : "the array", " that line ",
                                         open_.back().value->line, " opens");
    if (says("unexpected end of input")) return "the text ends inside " + opened;
    const std::string came = ", not " + in_quotes(word);
    if (says("object key"))
      return str("expected a key in double quotes", came,
                 " (HJSON without quotes is not supported)");
    if (says("object separator"))
      return "expected \":\" after the key " + in_quotes(open_.back().key) + came;
    if (says("; expected end of input"))
      return "expected the end of the text after the JSON value" + came;
    const bool number = std::string_view("+-.0123456789").find(word[0]) != npos;
    const bool complete = !number || nlohmann::json::accept(word);  // 01 is not
    if (complete && (says("parsing object") || says("parsing array")))
      return str("expected \",\" or \"", object ? '}' : ']', "\" inside ", opened, came);
    return "expected true, false, null, a number or a string in double quotes" + came;
  }

  const std::string& text_;  // plain JSON with at least one character that is not space
  const std::string& name_;
  const int set_;
  std::istringstream in_;
  size_t counted_ = 0;  // characters before which line_ counts the lines
  int line_ = 1;
  JsonValue root_;
  std::vector<Open> open_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members)
    if (member.key == key) return &member.value;
  return nullptr;
}

JsonValue parse_json(std::string_view text, const std::string& name, int set) {
  const size_t zero = text.find('\0');
  require_input(zero == npos, name, ":", line_at(text, std::min(zero, text.size())),
                ": this is not text: it has zero bytes");
  const std::string plain = plain_json(std::string(text), name);
  require_input(plain.find_first_not_of(kSpace) != npos, name,
                " is empty: a configuration is one JSON object, at least {}");
  return Builder(plain, name, set).build();
}

std::string in_quotes(std::string_view text, size_t longest) {
  // Half a character at the cut, or bytes that are not UTF-8, become U+FFFD.
  const nlohmann::json shown = std::string(text.substr(0, longest));
  std::string s = shown.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > longest) s.insert(s.size() - 1, "…");
  return printable(s);
}

std::string describe(const JsonValue& value) {
  switch (value.kind) {
    case Kind::null: return "null";
    case Kind::boolean: return value.boolean ? "true" : "false";
    case Kind::number: return value.text.size() <= 48 ? value.text : value.text.substr(0, 48) + "…";
    case Kind::string: return "the string " + in_quotes(value.text);
    case Kind::object: return "an object";
    case Kind::array: break;
  }
  std::string items;
  for (const JsonValue& item : value.items) {
    if (items.size() > 48) return "an array [" + items + ", …]";
    items += (items.empty() ? "" : ", ") + describe(item);
  }
  return items.empty() ? "an empty array" : "an array [" + items + "]";
}

}  // namespace zl
