#include "stages/deepspeed/json_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/printable.h"

namespace zl {
namespace {

constexpr auto npos = std::string_view::npos;
using Kind = JsonValue::Kind;
using Json = nlohmann::json;  // reads single words and strings here

class Reader {
 public:
  Reader(std::string_view text, const std::string& name, int set)
      : text_(text), name_(name), set_(set) {}

  JsonValue read() {
    if (text_.find('\0') != npos) fail("this is not text: it has zero bytes");
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
    skip_space();
    require_input(at_ < text_.size(), name_,
                  " is empty: a configuration is one JSON object, at least {}");
    JsonValue root = read_value("");
    if (at_ < text_.size()) fail("expected the end of the text after the JSON value", not_word());
    return root;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(str(name_, ":", line_, ": ", parts...));
  }

  // Comments count as space. No other text has line ends.
  void skip_space() {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      size_t length = std::string_view(" \t\r\n").find(rest[0]) == npos ? 0 : 1;
      if (rest.starts_with("//") || rest[0] == '#') length = std::min(rest.find('\n'), rest.size());
      if (rest.starts_with("/*")) length = rest.find("*/", 2);
      if (length == npos) fail("this comment has no end: */ is missing");
      if (length == 0) return;
      length += rest.starts_with("/*") ? 2 : 0;
      line_ += int(std::count(rest.begin(), rest.begin() + long(length), '\n'));
      at_ += length;
    }
  }

  // What is here: a string without its quotes, or all characters up to space or one that has a
  // meaning in JSON, or that character.
  std::string_view word() const {
    if (text_[at_] == '"') return text_.substr(at_ + 1, text_.find('"', at_ + 1) - at_ - 1);
    const size_t end = std::min(text_.find_first_of(" \t\r\n{}[],:\"/#", at_), text_.size());
    return text_.substr(at_, std::max<size_t>(end - at_, 1));
  }
  std::string not_word() const { return ", not " + in_quotes(word()); }

  // The next character. `opened`: the innermost array or object.
  char peek(const std::string& opened) const {
    if (at_ == text_.size()) fail("the text ends inside ", opened);
    return text_[at_];
  }

  JsonValue read_value(const std::string& opened) {
    JsonValue value{.line = line_, .set = set_};
    const char first = peek(opened);
    if (first == '{' || first == '[')
      read_items(value);
    else if (first == '"')
      value.kind = Kind::string, value.text = read_string();
    else
      read_word(value);
    skip_space();
    return value;
  }

  void read_items(JsonValue& list) {
    const bool object = text_[at_++] == '{';
    const char end = object ? '}' : ']';
    const std::string opened =
        str(object ? "the object" : "the array", " that line ", list.line, " opens");
    list.kind = object ? Kind::object : Kind::array;
    if (++depth_ > kJsonDepth)
      fail("more than ", kJsonDepth, " brackets are open here; a configuration needs 5");
    std::map<std::string, int> lines;  // of the keys
    for (skip_space(); peek(opened) != end;) {
      const int line = line_;
      const std::string key = object ? read_key(opened) : "";
      const auto [first, is_new] = lines.emplace(key, line);
      if (object && !is_new)
        fail("duplicate key ", in_quotes(key), "; the first is in line ", first->second);
      list.items.push_back(read_value(opened));
      list.items.back().key = key, list.items.back().line = line;
      if (peek(opened) == ',')
        ++at_, skip_space();
      else if (text_[at_] != end)
        fail("expected \",\" or \"", end, "\" inside ", opened, not_word());
    }
    ++at_, --depth_;
  }

  std::string read_key(const std::string& opened) {
    if (text_[at_] != '"')
      fail("expected a key in double quotes", not_word(),
           " (HJSON without quotes is not supported)");
    const std::string key = read_string();
    skip_space();
    if (peek(opened) != ':') fail("expected \":\" after the key ", in_quotes(key), not_word());
    ++at_, skip_space();
    return key;
  }

  std::string read_string() {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\n')
      end += text_[end] == '\\' ? 2 : 1;
    const Json string = Json::parse(text_.substr(at_, end + 1 - at_), nullptr, false);
    if (!string.is_string())
      fail(
          "this string does not end on its line, or has a wrong escape (\\), a control "
          "character or bytes that are not UTF-8");
    at_ = end + 1;
    return string;
  }

  // A number, true, false or null.
  void read_word(JsonValue& value) {
    value.text = word();
    const Json json = Json::parse(value.text, nullptr, false);
    const char* end = value.text.data() + value.text.size();
    const auto [stop, error] = std::from_chars(value.text.data(), end, value.number);
    if (json.is_discarded() && error == std::errc::result_out_of_range && stop == end)
      fail(in_quotes(value.text), " is too large for a number");
    if (json.is_discarded())
      fail("expected true, false, null, a number or a string in double quotes", not_word());
    if (json.is_number()) value.kind = Kind::number, value.number = json;
    if (json.is_boolean()) value.kind = Kind::boolean;
    at_ += value.text.size();
  }

  const std::string_view text_;
  const std::string& name_;
  const int set_;
  size_t at_ = 0;
  int line_ = 1, depth_ = 0;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const JsonValue& item : items)
    if (kind == Kind::object && item.key == name) return &item;
  return nullptr;
}

JsonValue parse_json(std::string_view text, const std::string& name, int set) {
  return Reader(text, name, set).read();
}

std::string in_quotes(std::string_view text, size_t longest) {
  // Half a character at the cut, or bytes that are not UTF-8, become U+FFFD.
  const Json shown = std::string(text.substr(0, longest));
  std::string s = shown.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > longest) s.insert(s.size() - 1, "…");
  return printable(s);
}

std::string describe(const JsonValue& value) {
  if (value.kind == Kind::string) return "the string " + in_quotes(value.text);
  if (value.kind == Kind::object) return "an object";
  if (value.kind != Kind::array)
    return value.text.size() <= 48 ? value.text : value.text.substr(0, 48) + "…";
  std::string items;
  for (const JsonValue& item : value.items) {
    if (items.size() > 48) return "an array [" + items + ", …]";
    items += (items.empty() ? "" : ", ") + describe(item);
  }
  return items.empty() ? "an empty array" : "an array [" + items + "]";
}

}  // namespace zl
