// What a value is as a number or a boolean, with pydantic's freedoms in the blocks that it checks.

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "stages/deepspeed/config_type.h"

namespace zl {
namespace {

using Json = JsonValue::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// " +500_000 " → "500000": blanks around it, a plus, and one "_" between two digits. Nothing if
// more is wrong with it.
std::optional<std::string> plain_number(std::string_view text) {
  constexpr char blank[] = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(blank);
  if (begin == text.npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(blank) + 1 - begin);
  if (text[0] == '+') {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return plain;
}

std::optional<int64_t> digits(std::string_view text) {
  int64_t whole = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && stop == text.data() + text.size()) return whole;
  return std::nullopt;
}

// "2", and "2.0" too, but not "2e0".
std::optional<int64_t> whole_of_text(const std::string& text) {
  auto plain = plain_number(text);
  if (!plain) return std::nullopt;
  const size_t point = plain->find('.');
  if (point != std::string::npos && point + 1 < plain->size() &&
      plain->find_first_not_of('0', point + 1) == std::string::npos &&
      text.find('_', text.find('.')) == std::string::npos)
    plain->resize(point);
  return digits(*plain);
}

std::optional<double> number_of_text(const std::string& text) {
  const auto plain = plain_number(text);
  if (!plain) return std::nullopt;
  double number = 0;
  const char* end = plain->data() + plain->size();
  const auto [stop, error] = std::from_chars(plain->data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

std::optional<int64_t> to_whole(const JsonValue& value, bool checked) {
  if (value.kind == Json::boolean && checked) return value.boolean ? 1 : 0;
  if (value.kind == Json::string) return checked ? whole_of_text(value.text) : std::nullopt;
  if (value.kind != Json::number) return std::nullopt;
  if (const auto whole = digits(value.text)) return whole;
  constexpr double too_much = 9223372036854775808.0;  // 2^63
  if (value.number != std::floor(value.number) || std::abs(value.number) >= too_much)
    return std::nullopt;
  return int64_t(value.number);  // 5e8
}

std::optional<double> to_number(const JsonValue& value, bool checked) {
  if (value.kind == Json::number) return value.number;
  if (!checked) return std::nullopt;
  if (value.kind == Json::boolean) return value.boolean ? 1 : 0;
  return value.kind == Json::string ? number_of_text(value.text) : std::nullopt;
}

std::optional<bool> to_boolean(const JsonValue& value, bool checked) {
  if (value.kind == Json::boolean) return value.boolean;
  if (!checked) return std::nullopt;
  if (value.kind == Json::number && (value.number == 0 || value.number == 1))
    return value.number == 1;
  if (value.kind != Json::string) return std::nullopt;
  const std::string text = lower_case(value.text);
  for (const char* yes : {"true", "yes", "on", "1", "t", "y"})
    if (text == yes) return true;
  for (const char* no : {"false", "no", "off", "0", "f", "n"})
    if (text == no) return false;
  return std::nullopt;
}

}  // namespace zl
