#include "stages/deepspeed/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tensor/error.h"
#include "tensor/io/small_file.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = " \t\r\n", kMarks = " \t\r\n{}[],:";
constexpr char kRules[] =
    " (keys and strings are in double quotes, a comma is between items, other values are "
    "numbers, true, false or null; all in UTF-8)";

// An array or object that is open.
struct Open {
  bool is_array;
  int line;
  std::string path;
};

// The length of the comment with which the text begins; 0: none, npos: it has no end.
size_t comment_length(std::string_view text) {
  if (text[0] == '#' || text.starts_with("//")) return std::min(text.find('\n'), text.size());
  if (!text.starts_with("/*")) return 0;
  const size_t end = text.find("*/", 2);
  return end == text.npos ? end : end + 2;
}

// A text of at most `longest` bytes, which ends between two characters of UTF-8.
std::string cut(std::string_view text, size_t longest) {
  if (text.size() <= longest) return std::string(text);
  while (longest > 0 && (text[longest] & 0xC0) == 0x80) --longest;
  return str(text.substr(0, longest), "…");
}

// The sentence about the word that ends behind these bytes, or a little later.
std::string wrong_word(const std::string& text, const std::string& name, size_t bytes,
                       const char* what, const char* rules = "") {
  const size_t last = std::min(bytes, text.size()),
               begin = text.find_last_of(kMarks, std::max<size_t>(last, 2) - 2) + 1;
  return str(name, ":", 1 + std::count(text.begin(), text.begin() + long(last), '\n'), what,
             in_quotes(text.substr(begin, text.find_first_of(kMarks, last) - begin)), rules);
}

}  // namespace

std::string plain_json(std::string_view original, const std::string& name, Places& places) {
  std::string text(original), path, here;  // of the last key
  std::vector<Open> open;
  size_t string = 0, comma = 0;  // where the last ones are
  int line = 1;
  char before = 0;  // the last character that is neither space nor in a string
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    const size_t comment = comment_length(std::string_view(text).substr(at));
    if (comment == text.npos) break;
    for (size_t i = at; i < at + comment; ++i) text[i] = text[i] == '\n' ? '\n' : ' ';
    const char c = text[at];
    end = at + 1;
    line += c == '\n';
    if (kSpace.find(c) != kSpace.npos) continue;
    if (before == 0) places[""] = str(name, ":", line);
    if (c == '"') {
      while (end < text.size() && text[end] != '\n' && text[end] != '"')
        end += text[end] == '\\' ? 2 : 1;
      require_input(end < text.size() && text[end++] == '"', name, ":", line,
                    ": this string does not end on its line");
      string = at, here = str(name, ":", line);
    } else if (c == ':' && before == '"' && !open.empty()) {
      const json key =
          json::parse(text.substr(string, text.find_last_of('"', at) + 1 - string), nullptr, false);
      path = path_of(open.back().path, key.is_string() ? key : "");
      const auto [first, is_new] = places.emplace(path, here);
      require_input(is_new, here, ": duplicate key ", shown_path(path), "; the first is at ",
                    first->second);
    } else if (c == '{' || c == '[') {
      require_input(open.size() < kJsonDepth, name, ":", line, ": more than ", kJsonDepth,
                    " brackets are open here; a configuration needs 5");
      if (!open.empty() && open.back().is_array)
        path = str(open.back().path, "[", places.size(), "]");
      open.push_back({c == '[', line, path});
    } else if (c == '}' || c == ']') {
      if (before == ',' && comma > 0) text[comma] = ' ';  // a trailing one
      if (!open.empty()) open.pop_back();
    } else if (c == ',') {
      comma = std::string_view("{[,:").find(before) == text.npos ? at : 0;
    }
    before = c;
  }
  require_input(before != 0, name, " is empty: a configuration is one JSON object, at least {}");
  if (!open.empty())
    throw InputError(str(name, ":", line, ": the text ends inside the ",
                         open.back().is_array ? "array" : "object", " that line ", open.back().line,
                         " opens"));
  require_input(text.find('\0') == text.npos, name, ":1: this is not text: it has zero bytes");
  std::istringstream in(text);
  try {
    return json::parse(in).dump();
  } catch (const json::parse_error& e) {
    throw InputError(wrong_word(text, name, e.byte, ": this is no JSON: ", kRules));
  } catch (const json::out_of_range&) {  // a character behind the number has been read too
    const auto read = size_t(in.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in));
    throw InputError(wrong_word(text, name, read - 1, ": a number is out of range: "));
  }
}

std::string path_of(const std::string& block, const std::string& key) {
  const bool plain = !key.empty() && key.find('.') == key.npos;
  return (block.empty() ? "" : block + ".") + (plain ? key : in_quotes(key, key.npos));
}

std::string shown_path(const std::string& path) {
  return path.size() <= 100 ? path : in_quotes(path, 60);
}

std::string text_of(const std::string& text) {
  const json value = json::parse(text);
  return value.is_string() ? std::string(value) : text;
}

std::string in_quotes(std::string_view text, size_t longest) {  // U+FFFD: bytes that are not UTF-8
  return printable(json(cut(text, longest)).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string describe(const std::string& text) {
  if (text[0] == '"') return "the string " + in_quotes(text_of(text));
  if (text[0] == '{') return "an object";
  if (text == "[]") return "an empty array";
  return (text[0] == '[' ? "an array " : "") + printable(cut(text, 48));
}

}  // namespace zl
