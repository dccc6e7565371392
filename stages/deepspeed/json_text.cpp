#include "stages/deepspeed/json_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr auto npos = std::string_view::npos;
constexpr size_t kMostDuplicates = 100;  // that are told
constexpr std::string_view kSpace = " \t\r\n", kEndOfWord = " \t\r\n,:{}[]\"#";

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  JsonDocument document() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
    if (text_.find('\0') != npos) fail("this is no text: it has zero bytes");
    skip();
    if (at_ == text_.size())
      throw InputError(name_ + " is empty: a configuration is one JSON object, at least {}");
    JsonDocument document{value(0), {}};
    skip();
    if (at_ < text_.size())
      fail(str("there is more text after the end of the JSON value: ", in_quotes(word())));
    document.duplicates = std::move(duplicates_);
    return document;
  }

 private:
  [[noreturn]] void fail(const std::string& sentence) const {
    throw InputError(str(name_, ":", line_, ": ", sentence));
  }

  bool next_is(std::string_view s) const { return text_.substr(at_, s.size()) == s; }
  // What stands here, up to the next character that ends a word; at least one character.
  std::string_view word() const {
    const auto w =
        text_.substr(at_, std::max<size_t>(1, text_.find_first_of(kEndOfWord, at_) - at_));
    return w.substr(0, std::min(w.find("//"), w.find("/*")));
  }

  void move_to(size_t end) {
    line_ += int(std::count(text_.begin() + long(at_), text_.begin() + long(end), '\n'));
    at_ = end;
  }

  // Moves over white space and comments.
  void skip() {
    while (at_ < text_.size()) {
      if (kSpace.find(text_[at_]) != npos) {
        move_to(at_ + 1);
      } else if (next_is("//") || next_is("#")) {
        move_to(std::min(text_.size(), text_.find('\n', at_)));
      } else if (next_is("/*")) {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == npos) fail("this comment has no end: */ is missing");
        move_to(end + 2);
      } else {
        return;
      }
    }
  }

  JsonValue value(int depth) {
    if (depth > kJsonDepth)
      fail(str("more than ", kJsonDepth, " brackets are open here; a configuration needs 5"));
    JsonValue v;
    v.line = line_;
    if (next_is("{")) {
      object(v, depth);
    } else if (next_is("[")) {
      array(v, depth);
    } else if (next_is("\"")) {
      v.kind = JsonValue::Kind::string;
      v.text = string();
    } else {
      scalar(v);
    }
    return v;
  }

  // After a value: moves over a comma or to the closing bracket. `opened` is said if the text ends.
  void separator(char close, const std::string& opened) {
    skip();
    if (at_ == text_.size()) fail("the text ends inside " + opened);
    if (text_[at_] == ',') {
      ++at_;
      skip();
      if (at_ == text_.size()) fail("the text ends inside " + opened);
    } else if (text_[at_] != close) {
      fail(str("expected \",\" or \"", close, "\" inside ", opened, ", not ", in_quotes(word())));
    }
  }

  void array(JsonValue& v, int depth) {
    v.kind = JsonValue::Kind::array;
    const std::string opened = str("the array that line ", line_, " opens");
    ++at_;
    skip();
    while (!next_is("]")) {
      if (at_ == text_.size()) fail("the text ends inside " + opened);
      v.items.push_back(value(depth + 1));
      separator(']', opened);
    }
    ++at_;
  }

  void object(JsonValue& v, int depth) {
    v.kind = JsonValue::Kind::object;
    const std::string opened = str("the object that line ", line_, " opens");
    std::unordered_map<std::string, int> lines;  // of the keys
    const size_t path = path_.size();
    ++at_;
    skip();
    while (!next_is("}")) {
      if (at_ == text_.size()) fail("the text ends inside " + opened);
      const int line = line_;
      const std::string name = key();
      path_ += (path == 0 ? "" : ".") + name;
      const auto [first, is_new] = lines.emplace(name, line);
      if (!is_new && duplicates_.size() < kMostDuplicates)
        duplicates_.push_back({path_, line, first->second});
      v.members.push_back({name, value(depth + 1)});
      v.members.back().value.line = line;
      path_.resize(path);
      separator('}', opened);
    }
    ++at_;
  }

  // A key and its colon, up to the value.
  std::string key() {
    if (!next_is("\"")) {
      const std::string name(word());
      if (!is_name(name)) fail(str("expected a key in double quotes, not ", in_quotes(name)));
      fail(str("HJSON without quotes is not supported: write \"", name,
               "\": ", value_after(at_ + name.size()), " (line ", line_, ")"));
    }
    const std::string name = string();
    skip();
    if (!next_is(":"))
      fail(str("expected \":\" after the key ", in_quotes(name),
               at_ == text_.size() ? ", but the text ends" : ""));
    ++at_;
    skip();
    if (at_ == text_.size()) fail(str("the text ends before the value of ", in_quotes(name)));
    return name;
  }

  // A number or a word of JSON that follows a colon at `at`, else "…".
  std::string value_after(size_t at) const {
    const size_t begin = text_.find_first_not_of(" \t:", at);
    if (begin == npos) return "…";
    const std::string word(text_.substr(begin, text_.find_first_of(kEndOfWord, begin) - begin));
    const bool known = nlohmann::json::accept(word) && !word.empty() && word[0] != '"';
    return known ? word : "…";
  }

  static bool is_name(std::string_view s) {
    return s.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == npos &&
           !s.empty();
  }

  std::string string() {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\n')
      end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size() || text_[end] != '"')
      fail("this string does not end on its line: a double quote is missing");
    const auto parsed = nlohmann::json::parse(text_.substr(at_, end + 1 - at_), nullptr, false);
    if (parsed.is_discarded())
      fail("this string has a wrong escape (\\), a control character, or bytes that are not UTF-8");
    at_ = end + 1;
    return parsed.get<std::string>();
  }

  // true, false, null or a number.
  void scalar(JsonValue& v) {
    const std::string_view w = word();
    const auto parsed = nlohmann::json::parse(w, nullptr, false);
    if (parsed.is_boolean()) {
      v.kind = JsonValue::Kind::boolean;
      v.boolean = parsed.get<bool>();
    } else if (parsed.is_number()) {
      v.kind = JsonValue::Kind::number;
      v.number = parsed.get<double>();
      v.text = std::string(w);
    } else if (!parsed.is_null()) {
      refuse(w);
    }
    at_ += w.size();
  }

  [[noreturn]] void refuse(std::string_view w) const {
    std::string lower(w);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return char(std::tolower(c)); });
    if (lower == "nan" || lower == "infinity" || lower == "-infinity" || lower == "inf" ||
        lower == "-inf") {
      fail(str(w, " is not a number that a configuration can have"));
    }
    if (lower == "true" || lower == "false" || lower == "none" || lower == "null") {
      fail(str(w, " is Python's spelling: write ", lower == "none" ? "null" : lower));
    }
    const bool like_number =
        w.find_first_of("0123456789") != npos && w.find_first_not_of("+-.0123456789eExX_") == npos;
    if (!like_number)
      fail(str("expected a value, not ", in_quotes(w),
               is_name(w) ? ": strings are written in double quotes" : ""));
    double ignored;
    const bool too_large = std::from_chars(w.data(), w.data() + w.size(), ignored).ec ==
                           std::errc::result_out_of_range;
    fail(str(in_quotes(w),
             too_large ? " is too large for a number" : " is not a number as JSON writes it"));
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  int line_ = 1;
  std::string path_;  // of the value that is being read
  std::vector<JsonDuplicate> duplicates_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& m : members) {
    if (m.key == key) return &m.value;
  }
  return nullptr;
}

JsonDocument parse_json(std::string_view text, const std::string& name) {
  return Parser(text, name).document();
}

std::string in_quotes(std::string_view text) {
  constexpr size_t longest = 48;
  const bool cut = text.size() > longest;
  const std::string shown(text.substr(0, longest));
  // Half a character at the cut, or bytes that are no text, become U+FFFD.
  std::string s =
      nlohmann::json(shown).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (cut) s.insert(s.size() - 1, "…");
  return s;
}

std::string describe(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::null: return "null";
    case JsonValue::Kind::boolean: return value.boolean ? "true" : "false";
    case JsonValue::Kind::number:
      return value.text.size() <= 48 ? value.text : value.text.substr(0, 48) + "…";
    case JsonValue::Kind::string: return "the string " + in_quotes(value.text);
    case JsonValue::Kind::array: return value.items.empty() ? "an empty array" : "an array";
    case JsonValue::Kind::object: return "an object";
  }
  return "";
}

}  // namespace zl
