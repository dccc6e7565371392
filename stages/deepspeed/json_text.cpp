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

struct Reader {
  const std::string_view text;
  const std::string &name, &where;
  size_t at = 0;
  int line = 1, depth = 0;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(str(name, ":", line, ": ", parts...));
  }

  // Comments count as space. No other text has line ends.
  void skip_space() {
    while (at < text.size()) {
      const std::string_view rest = text.substr(at);
      size_t length = std::string_view(" \t\r\n").find(rest[0]) == npos ? 0 : 1;
      if (rest.starts_with("//") || rest[0] == '#') length = std::min(rest.find('\n'), rest.size());
      if (rest.starts_with("/*")) length = rest.find("*/", 2);
      if (length == npos) fail("this comment has no end: */ is missing");
      if (length == 0) return;
      length += rest.starts_with("/*") ? 2 : 0;
      line += int(std::count(rest.begin(), rest.begin() + long(length), '\n'));
      at += length;
    }
  }

  // What is here: a string without its quotes, or all characters up to space or one that has a
  // meaning in JSON, or that character.
  std::string_view word() const {
    if (text[at] == '"') return text.substr(at + 1, text.find('"', at + 1) - at - 1);
    const size_t end = std::min(text.find_first_of(" \t\r\n{}[],:\"/#", at), text.size());
    return text.substr(at, std::max<size_t>(end - at, 1));
  }
  std::string not_word() const { return ", not " + in_quotes(word()); }

  // The next character. `opened`: the innermost array or object.
  char peek(const std::string& opened) const {
    if (at == text.size()) fail("the text ends inside ", opened);
    return text[at];
  }

  JsonValue value_here() const {
    return {.line = line, .where = where.empty() ? str(name, ":", line) : where};
  }

  void read_value(JsonValue& value, const std::string& opened) {
    const char first = peek(opened);
    if (first == '{' || first == '[')
      read_items(value);
    else if (first == '"')
      value.kind = Kind::string, value.text = read_string();
    else
      read_word(value);
    skip_space();
  }

  void read_items(JsonValue& list) {
    const bool object = text[at++] == '{';
    const char end = object ? '}' : ']';
    const std::string opened =
        str(object ? "the object" : "the array", " that line ", line, " opens");
    list.kind = object ? Kind::object : Kind::array;
    if (++depth > kJsonDepth)
      fail("more than ", kJsonDepth, " brackets are open here; a configuration needs 5");
    std::map<std::string, int> lines;  // of the keys
    for (skip_space(); peek(opened) != end;) {
      JsonValue item = value_here();
      if (object) {
        item.key = read_key(opened);
        const auto [first, is_new] = lines.emplace(item.key, item.line);
        if (!is_new)
          fail("duplicate key ", in_quotes(item.key), "; the first is in line ", first->second);
      }
      read_value(item, opened);
      list.items.push_back(std::move(item));
      if (peek(opened) == ',')
        ++at, skip_space();
      else if (text[at] != end)
        fail("expected \",\" or \"", end, "\" inside ", opened, not_word());
    }
    ++at, --depth;
  }

  std::string read_key(const std::string& opened) {
    if (text[at] != '"')
      fail("expected a key in double quotes", not_word(),
           " (HJSON without quotes is not supported)");
    const std::string key = read_string();
    skip_space();
    if (peek(opened) != ':') fail("expected \":\" after the key ", in_quotes(key), not_word());
    ++at, skip_space();
    return key;
  }

  std::string read_string() {
    size_t end = at + 1;
    while (end < text.size() && text[end] != '"' && text[end] != '\n')
      end += text[end] == '\\' ? 2 : 1;
    const Json string = Json::parse(text.substr(at, end + 1 - at), nullptr, false);
    if (!string.is_string())
      fail(
          "this string does not end on its line, or has a wrong escape (\\), a control "
          "character or bytes that are not UTF-8");
    at = end + 1;
    return string;
  }

  // A number, true, false or null.
  void read_word(JsonValue& value) {
    const std::string& text = value.text = word();
    const Json json = Json::parse(text, nullptr, false);
    const char* end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value.number);
    if (json.is_discarded() && problem == std::errc::result_out_of_range && stop == end)
      fail(in_quotes(text), " is too large for a number");
    if (json.is_discarded())
      fail("expected true, false, null, a number or a string in double quotes", not_word());
    if (json.is_number()) value.kind = Kind::number, value.number = json;
    if (json.is_boolean()) value.kind = Kind::boolean;
    at += text.size();
  }
};

// A text of at most `longest` bytes, which ends between two characters of UTF-8.
std::string cut(std::string_view text, size_t longest) {
  if (text.size() <= longest) return std::string(text);
  while (longest > 0 && (text[longest] & 0xC0) == 0x80) --longest;
  return str(text.substr(0, longest), "…");
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const JsonValue& item : items)
    if (kind == Kind::object && item.key == name) return &item;
  return nullptr;
}

JsonValue parse_json(std::string_view text, const std::string& name, const std::string& where) {
  Reader reader{text, name, where};
  if (text.find('\0') != npos) reader.fail("this is not text: it has zero bytes");
  if (text.starts_with("\xEF\xBB\xBF")) reader.at = 3;  // a byte order mark
  reader.skip_space();
  require_input(reader.at < text.size(), name,
                " is empty: a configuration is one JSON object, at least {}");
  JsonValue root = reader.value_here();
  reader.read_value(root, "");
  if (reader.at < text.size())
    reader.fail("expected the end of the text after the JSON value", reader.not_word());
  return root;
}

std::string in_quotes(std::string_view text, size_t longest) {  // U+FFFD: bytes that are not UTF-8
  return printable(Json(cut(text, longest)).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string describe(const JsonValue& value) {
  if (value.kind == Kind::string) return "the string " + in_quotes(value.text);
  if (value.kind == Kind::object) return "an object";
  if (value.kind != Kind::array) return printable(cut(value.text, 48));
  std::string items;
  for (const JsonValue& item : value.items) {
    if (items.size() > 48) return "an array [" + items + ", …]";
    const std::string shown = item.kind == Kind::string ? in_quotes(item.text) : describe(item);
    items += (items.empty() ? "" : ", ") + shown;
  }
  return items.empty() ? "an empty array" : "an array [" + items + "]";
}

}  // namespace zl
