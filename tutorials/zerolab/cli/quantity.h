// Numbers on the command line: counts (5e8, 500M), sizes (64MiB, 1.5GB), rates (100MB/s), times
// (50us) and real numbers. (CLI11's AsNumberWithUnit has neither fractions such as 1.5GB nor an
// exact 7.5e9.)
//
// All functions throw InputError with one sentence that quotes the text. A long double has the 64
// bits of an int64 (x86-64) or more, so counts such as 9007199254740993 are exact.
#pragma once

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "tensor/error.h"

namespace zl::cli {

static_assert(std::numeric_limits<long double>::digits >= 64);

struct NumberUnit {
  std::string_view name;
  long double factor;
};

// A number without sign, such as "7.5e9", times the factor of the unit behind it. Throws InputError
// that ends with `wrong`, such as "is not a size", if the text is something else.
inline long double read_scaled(std::string_view text, std::span<const NumberUnit> units,
                               const char* wrong) {
  const char* const last = text.data() + text.size();
  long double value = 0;
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error == std::errc::result_out_of_range) value = std::numeric_limits<long double>::infinity();
  if (error != std::errc::invalid_argument && (std::isdigit(text[0]) || text[0] == '.'))
    for (const auto& [name, factor] : units)
      if (name == std::string_view(end, size_t(last - end))) {
        const long double scaled = value * factor, whole = std::round(scaled);
        // 2.3M is not exact in binary, but means a whole number.
        return std::abs(scaled - whole) <= scaled * 0x1p-62L ? whole : scaled;
      }
  throw InputError(str("'", text, "' ", wrong));
}

// A whole number between `least` and `most`: "100", "5e8", "7.5e9", "500M". K, M, G (or B) and T
// are powers of 1,000.
inline int64_t read_count(std::string_view text, int64_t least = 0,
                          int64_t most = std::numeric_limits<int64_t>::max()) {
  constexpr const char* wrong = "is not a count; write one whole number such as 100, 5e8 or 500M";
  constexpr NumberUnit units[] = {{"", 1},     {"K", 1e3L}, {"k", 1e3L}, {"M", 1e6L},
                                  {"G", 1e9L}, {"B", 1e9L}, {"T", 1e12L}};
  const long double value = read_scaled(text, units, wrong);
  require_input(value <= most, "'", text, "' is too large; it must be at most ", most);
  require_input(value == std::floor(value), "'", text, "' ", wrong);
  require_input(value >= least, "'", text, "' is too small; it must be at least ", least);
  return int64_t(value);
}

// Reads such a count, for Flags::add.
inline auto count_within(int64_t least = 1, int64_t most = std::numeric_limits<int64_t>::max()) {
  return [=](const std::string& text) { return read_count(text, least, most); };
}

inline constexpr NumberUnit kByteUnits[] = {
    {"", 1},          {"B", 1},         {"KiB", 0x1p10L}, {"MiB", 0x1p20L}, {"GiB", 0x1p30L},
    {"TiB", 0x1p40L}, {"kB", 1e3L},     {"KB", 1e3L},     {"MB", 1e6L},     {"GB", 1e9L},
    {"TB", 1e12L},    {"Mbit", 125e3L}, {"Gbit", 125e6L}};  // the last two: of rates

// "64MiB", "64MB", "1.5GiB", "1000000", "512B" in bytes, rounded down; at least 1.
inline int64_t read_size(std::string_view text) {
  const long double value = read_scaled(
      text, std::span(kByteUnits).first(11),
      "is not a size; write bytes or a unit: KiB to TiB (of 1,024), kB to TB (of 1,000)");
  require_input(value >= 1 && value < 0x1p63L, "'", text, "' is not within 1 and 2^63 - 1 bytes");
  return int64_t(value);
}

// "100MB/s", "1GiB", "10Gbit/s" in bytes per second; more than 0.
inline double read_rate(std::string_view text) {
  constexpr const char* wrong =
      "is not a rate; write a number and a unit, such as 100MB/s, 1GiB/s or 10Gbit/s";
  const size_t amount = text.size() - (text.ends_with("/s") ? 2 : 0);
  const long double value =
      read_scaled(text.substr(0, amount), std::span(kByteUnits).subspan(1), wrong);
  require_input(value > 0 && value < 1e18L, "'", text, "' ", wrong);
  return double(value);
}

// "50us", "2ms", "1.5s" in seconds, up to an hour.
inline double read_time(std::string_view text) {
  constexpr NumberUnit units[] = {{"ns", 1e-9L}, {"us", 1e-6L}, {"ms", 1e-3L}, {"s", 1}};
  if (text == "0") return 0;
  const long double value =
      read_scaled(text, units, "is not a time; write a number and a unit, such as 50us, 2ms or 1s");
  require_input(value <= 3600, "'", text, "' is more than an hour");
  return double(value);
}

// A finite number from 0 up: "0.8", "1e-3".
inline double read_real(std::string_view text) {
  constexpr NumberUnit units[] = {{"", 1}};
  constexpr const char* wrong = "is not a number from 0 up";
  const auto value = double(read_scaled(text, units, wrong));
  require_input(std::isfinite(value), "'", text, "' ", wrong);
  return value;
}

// A seed: a whole number up to 2^64 - 1, or a count.
inline uint64_t read_seed(std::string_view text) {
  uint64_t seed = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, seed);
  return error == std::errc() && end == last ? seed : uint64_t(read_count(text));
}

}  // namespace zl::cli
