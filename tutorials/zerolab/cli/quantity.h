// Numbers on the command line: counts (5e8, 500M), sizes (64MiB, 1.5GB), rates (100MB/s), times
// (50us) and real numbers.
//
// All functions throw InputError with one sentence that quotes the text. A long double has the 64
// bits of an int64 (x86-64) or more, so counts such as 9007199254740993 are exact.
#pragma once

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "tensor/error.h"

namespace zl::cli {

static_assert(std::numeric_limits<long double>::digits >= 64);

// A number without sign, such as "7.5e9", times the unit behind it. `units` are pairs of name and
// factor. False if the text is something else; then `unknown_unit` says whether it is the unit.
template <class Units>
bool read_scaled(std::string_view text, const Units& units, long double& value,
                 bool& unknown_unit) {
  const bool unsigned_number = !text.empty() && (std::isdigit(text[0]) || text[0] == '.');
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) value = std::numeric_limits<long double>::infinity();
  unknown_unit = unsigned_number && error != std::errc::invalid_argument;
  if (!unknown_unit) return false;
  for (const auto& [name, factor] : units)
    if (text.substr(size_t(end - text.data())) == name) {
      const long double scaled = value * factor, whole = std::round(scaled);
      // 2.3M is not exact in binary, but means a whole number.
      value = std::abs(scaled - whole) <= scaled * 0x1p-62L ? whole : scaled;
      unknown_unit = false;
      return true;
    }
  return false;
}

// A whole number from 0 up: "100", "5e8", "7.5e9", "500M". K, M, G (or B) and T are powers of
// 1,000.
inline int64_t read_count(std::string_view text) {
  constexpr std::pair<std::string_view, long double> units[] = {
      {"", 1}, {"K", 1e3L}, {"k", 1e3L}, {"M", 1e6L}, {"G", 1e9L}, {"B", 1e9L}, {"T", 1e12L}};
  long double value = 0;
  bool unknown_unit = false;
  const bool number = read_scaled(text, units, value, unknown_unit);
  require_input(!number || value < 0x1p63L, "'", text,
                "' is more than 9223372036854775807, the largest count");
  require_input(number && value == std::floor(value), "'", text,
                "' is not a count; write a whole number such as 100, 5e8 or 500M");
  return int64_t(value);
}

// The same, between `least` and `most`.
inline int64_t read_count(std::string_view text, int64_t least,
                          int64_t most = std::numeric_limits<int64_t>::max()) {
  const int64_t value = read_count(text);
  require_input(value >= least, "'", text, "' is too small; it must be at least ", least);
  require_input(value <= most, "'", text, "' is too large; it must be at most ", most);
  return value;
}

// "64MiB", "64MB", "1.5GiB", "1000000", "512B" in bytes, rounded down; at least 1.
inline int64_t read_size(std::string_view text) {
  constexpr std::pair<std::string_view, long double> units[] = {
      {"", 1},          {"B", 1},         {"KiB", 0x1p10L}, {"MiB", 0x1p20L},
      {"GiB", 0x1p30L}, {"TiB", 0x1p40L}, {"kB", 1e3L},     {"KB", 1e3L},
      {"MB", 1e6L},     {"GB", 1e9L},     {"TB", 1e12L}};
  long double value = 0;
  bool unknown_unit = false;
  const bool number = read_scaled(text, units, value, unknown_unit);
  require_input(!unknown_unit, "'", text,
                "' has no known unit; B, KiB, MiB, GiB and TiB are powers of 1,024, kB, MB, GB and "
                "TB of 1,000");
  require_input(number, "'", text,
                "' is not a size; write bytes or a unit, such as 64MiB or 1.5GB");
  require_input(value < 0x1p63L, "'", text, "' is more than 9223372036854775807 bytes");
  require_input(value >= 1, "'", text, "' is less than one byte");
  return int64_t(value);
}

// "100MB/s", "1GiB", "10Gbit/s" in bytes per second; more than 0.
inline double read_rate(std::string_view text) {
  constexpr std::pair<std::string_view, long double> units[] = {
      {"B", 1},      {"KiB", 0x1p10L}, {"MiB", 0x1p20L}, {"GiB", 0x1p30L},
      {"kB", 1e3L},  {"KB", 1e3L},     {"MB", 1e6L},     {"GB", 1e9L},
      {"TB", 1e12L}, {"Mbit", 125e3L}, {"Gbit", 125e6L}};
  const std::string_view per_second = "/s";
  const std::string_view amount =
      text.ends_with(per_second) ? text.substr(0, text.size() - per_second.size()) : text;
  long double value = 0;
  bool unknown_unit = false;
  const bool number = read_scaled(amount, units, value, unknown_unit);
  require_input(number && value > 0 && value < 1e18L, "'", text,
                "' is not a rate; write a number and a unit, such as 100MB/s, 1GiB/s or 10Gbit/s");
  return double(value);
}

// "50us", "2ms", "1.5s" in seconds, up to an hour.
inline double read_time(std::string_view text) {
  constexpr std::pair<std::string_view, long double> units[] = {
      {"ns", 1e-9L}, {"us", 1e-6L}, {"ms", 1e-3L}, {"s", 1}};
  long double value = 0;
  bool unknown_unit = false;
  const bool number = read_scaled(text, units, value, unknown_unit);
  require_input(number || text == "0", "'", text,
                "' is not a time; write a number and a unit, such as 50us, 2ms or 1s");
  require_input(value <= 3600, "'", text, "' is more than an hour");
  return double(value);
}

// A finite number from 0 up: "0.8", "1e-3".
inline double read_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number =
      error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
  require_input(number && value >= 0, "'", text, "' is not a number from 0 up");
  return value;
}

// A seed: a whole number up to 2^64 - 1, or a count.
inline uint64_t read_seed(std::string_view text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? seed : uint64_t(read_count(text));
}

}  // namespace zl::cli
