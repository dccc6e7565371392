// Numbers as people type them: counts (5e8, 500M), sizes (64MiB, 1.5GB), seconds, and ranges of
// them.
//
// All throw InputError with one sentence that quotes what was typed. Arithmetic is exact: a count
// never goes through a double, so 9007199254740993 stays itself and 1e400 is refused, not infinite.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "tensor/error.h"

namespace zl::cli {

// A decimal number without sign and what follows it: digits [. digits] [e [+|-] digits] suffix.
struct Decimal {
  unsigned __int128 mantissa = 0;
  int exponent = 0;  // of ten
  std::string_view suffix;
  bool is_number = false, fits = true;
};

inline Decimal read_decimal(std::string_view text) {
  Decimal d;
  size_t i = 0;
  bool fraction = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !fraction) {
      fraction = true;
    } else if (c >= '0' && c <= '9') {
      d.is_number = true;
      if (d.mantissa > 1'000'000'000'000'000'000)
        d.fits = false;  // 20 digits: beyond 64 bits whatever follows
      if (d.fits) d.mantissa = d.mantissa * 10 + unsigned(c - '0');
      if (fraction) --d.exponent;
    } else {
      break;
    }
  }
  if (d.is_number && i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const char* begin = text.data() + i + 1 + (i + 1 < text.size() && text[i + 1] == '+' ? 1 : 0);
    int exponent = 0;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), exponent);
    if (end != begin) {
      if (error == std::errc::result_out_of_range || exponent > 30 || exponent < -30)
        d.fits = d.mantissa == 0;
      else
        d.exponent += exponent;
      i = size_t(end - text.data());
    }
  }
  d.suffix = text.substr(i);
  return d;
}

// mantissa * 10^exponent * unit, rounded down; false if that is more than an int64 holds. `whole`:
// nothing was lost.
inline bool scale(const Decimal& d, int64_t unit, int64_t& value, bool& whole) {
  unsigned __int128 v = d.mantissa * uint64_t(unit);  // < 10^19 * 2^40
  whole = true;
  for (int e = d.exponent; e < 0 && v != 0; ++e) {
    whole = whole && v % 10 == 0;
    v /= 10;
  }
  constexpr unsigned __int128 largest = std::numeric_limits<int64_t>::max();
  for (int e = d.exponent; e > 0 && v != 0; --e) {
    if (v > largest) return false;
    v *= 10;
  }
  value = int64_t(v);
  return d.fits && v <= largest;
}

// "100", "5e8", "7.5e9", "500M": a whole number from 0 up. K, M, G (or B) and T are powers of
// 1,000.
inline int64_t read_count(std::string_view text) {
  constexpr const char* expected =
      "' is not a count; write a whole number such as 100, 5e8 or 500M";
  const Decimal d = read_decimal(text);
  int64_t unit = d.suffix.empty() ? 1 : 0;
  if (d.suffix == "K" || d.suffix == "k") unit = 1'000;
  if (d.suffix == "M") unit = 1'000'000;
  if (d.suffix == "G" || d.suffix == "B") unit = 1'000'000'000;
  if (d.suffix == "T") unit = 1'000'000'000'000;
  require_input(d.is_number && unit != 0, "'", text, expected);
  int64_t value = 0;
  bool whole = false;
  require_input(scale(d, unit, value, whole), "'", text,
                "' is more than 9223372036854775807, the largest count");
  require_input(whole, "'", text, expected);
  return value;
}

// The same, between `least` and `most`.
inline int64_t read_count(std::string_view text, int64_t least,
                          int64_t most = std::numeric_limits<int64_t>::max()) {
  const int64_t value = read_count(text);
  require_input(value >= least, "'", text, "' is too small; it must be at least ", least);
  require_input(value <= most, "'", text, "' is too large; it must be at most ", most);
  return value;
}

// "64MiB", "64MB", "1.5GiB", "1000000", "512B" in bytes, rounded down to whole ones.
inline int64_t read_size(std::string_view text) {
  const Decimal d = read_decimal(text);
  require_input(d.is_number, "'", text,
                "' is not a size; write bytes or a unit, such as 64MiB or 1.5GB");
  struct Unit {
    const char* name;
    int64_t bytes;
  };
  constexpr Unit units[] = {{"", 1},
                            {"B", 1},
                            {"KiB", int64_t(1) << 10},
                            {"MiB", int64_t(1) << 20},
                            {"GiB", int64_t(1) << 30},
                            {"TiB", int64_t(1) << 40},
                            {"kB", 1'000},
                            {"KB", 1'000},
                            {"MB", 1'000'000},
                            {"GB", 1'000'000'000},
                            {"TB", 1'000'000'000'000}};
  for (const Unit& unit : units) {
    if (d.suffix != unit.name) continue;
    int64_t value = 0;
    bool whole = false;
    require_input(scale(d, unit.bytes, value, whole), "'", text,
                  "' is more than 9223372036854775807 bytes");
    require_input(value > 0, "'", text, "' is less than one byte");
    return value;
  }
  throw InputError(str("'", text,
                       "' has no known unit; B, KiB, MiB, GiB and TiB are powers of 1,024, kB, MB, "
                       "GB and TB of 1,000"));
}

// "0.8", "1e-3": a finite number from 0 up.
inline double read_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number =
      error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
  require_input(number && value >= 0, "'", text, "' is not a number from 0 up");
  return value;
}

}  // namespace zl::cli
