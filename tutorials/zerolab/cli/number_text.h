// Numbers as text for people.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace zl::cli {

// snprintf into a string; at most 159 characters.
inline std::string format(const char* pattern, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// The number with `digits` significant digits, and up to 1e7 with all before the point: "0.0123",
// "4.56", "1234", "7.5e+10" of 3; "-" if it is not finite.
inline std::string digits(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  const bool large = size >= std::pow(10, digits) - 0.5 && size < 1e7;
  return large ? format("%.0f", value) : format("%.*g", digits, value);
}

// [s] as milliseconds with three significant digits.
inline std::string milliseconds(double seconds) { return digits(1e3 * seconds, 3); }

// "23.9k", "512", "1.2M".
inline std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  for (const auto& [unit, name] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (value >= unit) return format(value < 100 * unit ? "%.1f%s" : "%.0f%s", value / unit, name);
  return format("%.0f", value);
}

// "3s", "2m 05s", "1h 02m".
inline std::string short_time(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  const auto s = int64_t(std::ceil(seconds));
  if (s < 60) return format("%ds", int(s));
  if (s < 3600) return format("%dm %02ds", int(s / 60), int(s % 60));
  return format("%dh %02dm", int(s / 3600), int(s / 60 % 60));
}

// A hash: 16 hexadecimal digits.
inline std::string hexadecimal(uint64_t value) {
  return format("%016llx", (unsigned long long)value);
}

// "842,496".
inline std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = int64_t(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(size_t(at), ",");
  return text;
}

// "1 rank", "4 ranks".
inline std::string plural(int64_t n, const char* one) {
  return with_commas(n) + " " + one + (n == 1 ? "" : "s");
}

}  // namespace zl::cli
