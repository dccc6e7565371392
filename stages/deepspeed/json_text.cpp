#include "stages/deepspeed/json_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using Kind = JsonValue::Kind;
using nlohmann::json;  // reads single words and strings here

struct Reader {
  const std::string_view text;
  const std::string &name, &where;
  size_t at = 0;
  int line = 1, depth = 0;
  std::string inside = {};  // which array or object is open

  void fail(const auto&... parts) const { throw InputError(str(name, ":", line, ": ", parts...)); }

  // What is here: a string without its quotes, or all characters up to space or one that has a
  // meaning in JSON, or that character.
  std::string_view word() const {
    if (text[at] == '"') return text.substr(at + 1, text.find('"', at + 1) - at - 1);
    const size_t end = std::min(text.find_first_of(" \t\r\n{}[],:\"/#", at), text.size());
    return text.substr(at, std::max<size_t>(end - at, 1));
  }

  void expect(bool is_here, const auto&... what) const {
    if (!is_here && at == text.size()) fail("the text ends inside ", inside);
    if (!is_here) fail("expected ", what..., ", not ", in_quotes(word()));
  }

  // The next character that is neither space nor in a comment; 0 at the end. No other text has line
  // ends.
  char next() {
    while (at < text.size()) {
      const std::string_view rest = text.substr(at);
      size_t length = rest.find_first_not_of(" \t\r\n");
      if (rest[0] == '#' || rest.starts_with("//")) length = rest.find('\n');
      if (rest.starts_with("/*")) {
        if ((length = rest.find("*/", 2)) == rest.npos)
          fail("this comment has no end: */ is missing");
        length += 2;
      }
      if (length == 0) return text[at];
      const std::string_view skipped = rest.substr(0, length);
      line += int(std::ranges::count(skipped, '\n'));
      at += skipped.size();
    }
    return 0;
  }

  JsonValue value_here() const {
    if (!where.empty()) return {.where = where};
    return {.line = line, .where = str(name, ":", line)};
  }

  void read_value(JsonValue& value) {
    const char first = next();
    if (first == '{' || first == '[')
      read_items(value, first == '{');
    else if (first == '"')
      value.kind = Kind::string, value.text = read_string();
    else
      read_word(value);
  }

  void read_items(JsonValue& list, bool object) {
    const std::string around = std::exchange(
        inside, str(object ? "the object" : "the array", " that line ", line, " opens"));
    const char end = object ? '}' : ']';
    std::map<std::string, int> lines;  // of the keys
    list.kind = object ? Kind::object : Kind::array;
    if (++depth > kJsonDepth)
      fail("more than ", kJsonDepth, " brackets are open here; a configuration needs 5");
    for (++at; next() != end;) {
      JsonValue item = value_here();
      if (object) {
        expect(next() == '"', "a key in double quotes inside ", inside);
        item.key = read_string();
        const auto [first, is_new] = lines.emplace(item.key, line);
        if (!is_new)
          fail("duplicate key ", in_quotes(item.key), "; the first is in line ", first->second);
        expect(next() == ':', "\":\" after the key ", in_quotes(item.key));
        ++at;
      }
      read_value(item);
      list.items.push_back(std::move(item));
      expect(next() == ',' || next() == end, "\",\" or \"", end, "\" inside ", inside);
      if (text[at] == ',') ++at;
    }
    ++at, --depth;
    inside = around;
  }

  std::string read_string() {
    size_t end = at + 1;
    while (end < text.size() && text[end] != '"' && text[end] != '\n')
      end += text[end] == '\\' ? 2 : 1;
    const json string = json::parse(text.substr(at, end + 1 - at), nullptr, false);
    if (!string.is_string())
      fail(
          "this string does not end on its line, or has a wrong escape (\\), a control "
          "character or bytes that are not UTF-8");
    at = end + 1;
    return string;
  }

  // A number, true, false or null.
  void read_word(JsonValue& value) {
    expect(at < text.size());
    value.text = word();
    const json read = json::parse(value.text, nullptr, false);
    expect(!read.is_discarded(), "true, false, null, a number or a string in double quotes");
    value.number = read.is_number() ? double(read) : 0;
    value.kind = read.is_number() ? Kind::number : read.is_boolean() ? Kind::boolean : Kind::null;
    at += value.text.size();
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
  const auto item = std::ranges::find(items, name, &JsonValue::key);
  return kind == Kind::object && item != items.end() ? &*item : nullptr;
}

JsonValue parse_json(std::string_view text, const std::string& name, const std::string& where) {
  Reader reader{text, name, where};
  if (text.find('\0') != text.npos) reader.fail("this is not text: it has zero bytes");
  if (text.starts_with("\xEF\xBB\xBF")) reader.at = 3;  // a byte order mark
  require_input(reader.next() != 0, name,
                " is empty: a configuration is one JSON object, at least {}");
  JsonValue root = reader.value_here();
  reader.read_value(root);
  reader.expect(reader.next() == 0, "the end of the text after the JSON value");
  return root;
}

std::string in_quotes(std::string_view text, size_t longest) {  // U+FFFD: bytes that are not UTF-8
  return printable(json(cut(text, longest)).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string describe(const JsonValue& value) {
  if (value.kind == Kind::string) return "the string " + in_quotes(value.text);
  if (value.kind == Kind::object) return "an object";
  if (value.kind != Kind::array) return printable(cut(value.text, 48));
  std::string items;
  for (const JsonValue& item : value.items)
    items += (items.empty() ? "" : ", ") +
             (item.kind == Kind::string ? in_quotes(item.text) : describe(item));
  return items.empty() ? "an empty array" : "an array [" + cut(items, 48) + "]";
}

}  // namespace zl
