// Numbers on the command line: counts (5e8, 500M), sizes (64MiB, 1.5GB), rates (100MB/s), times
// (50us) and real numbers. (CLI11's AsNumberWithUnit has neither fractions such as 1.5GB nor an
// exact 7.5e9.)
//
// All functions throw InputError with one sentence that quotes the text. A long double has the 64
// bits of an int64 (x86-64) or more, so counts such as 9007199254740993 are exact.
#pragma once

#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "tensor/error.h"

namespace zl::cli {

static_assert(std::numeric_limits<long double>::digits >= 64);

struct NumberUnit {
  std::string_view name;
  long double factor;
};

// A number without sign, such as "7.5e9", times the factor of the unit behind it. Throws InputError
// that ends with `wrong`, such as "is not a size", if the text is something else, or the number is
// not within `least` and `most`.
inline long double read_scaled(std::string_view text, std::span<const NumberUnit> units,
                               std::string_view wrong, long double least = 0,
                               long double most = std::numeric_limits<long double>::infinity()) {
  const char* const last = text.data() + text.size();
  long double value = 0;
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error == std::errc::result_out_of_range) value = std::numeric_limits<long double>::infinity();
  if (error != std::errc::invalid_argument && (std::isdigit(text[0]) || text[0] == '.'))
    for (const auto& [name, factor] : units)
      if (name == std::string_view(end, size_t(last - end))) {
        const long double scaled = value * factor, whole = std::round(scaled);
        // 2.3M is not exact in binary, but means a whole number.
        value = std::abs(scaled - whole) <= scaled * 0x1p-62L ? whole : scaled;
        if (least <= value && value <= most) return value;
      }
  throw InputError(str("'", text, "' ", wrong));
}

// A whole number between `least` and `most`: "100", "5e8", "7.5e9", "500M". K, M, G (or B) and T
// are powers of 1,000. `advice`: what the message ends with where the number is above `most`.
template <class Number = int64_t>
Number read_count(std::string_view text, std::type_identity_t<Number> least = 0,
                  std::type_identity_t<Number> most = std::numeric_limits<Number>::max(),
                  const char* advice = "") {
  constexpr NumberUnit units[] = {{"", 1},     {"K", 1e3L}, {"k", 1e3L}, {"M", 1e6L},
                                  {"G", 1e9L}, {"B", 1e9L}, {"T", 1e12L}};
  const bool open = most == Number(std::numeric_limits<int64_t>::max());
  const bool widest = uint64_t(most) == std::numeric_limits<uint64_t>::max();
  const std::string end = widest ? "2^64 - 1" : most == Number(1e9) ? "1e9" : str(most);
  const std::string wrong = str("is not a whole number from ", least, open ? " up" : " to " + end,
                                most < 10'000 ? ", such as 4" : ", such as 100, 5e8 or 500M");
  const long double value = read_scaled(text, units, wrong);
  require_input(least <= value && value <= most && value == std::floor(value), "'", text, "' ",
                wrong, value > most ? advice : "");
  return Number(value);
}

// Reads such a count, for Flags::add.
inline auto count_within(int64_t least = 1, int64_t most = std::numeric_limits<int64_t>::max(),
                         const char* advice = "") {
  return [=](const std::string& text) { return read_count(text, least, most, advice); };
}

inline constexpr NumberUnit kByteUnits[] = {
    {"", 1},          {"B", 1},         {"KiB", 0x1p10L}, {"MiB", 0x1p20L}, {"GiB", 0x1p30L},
    {"TiB", 0x1p40L}, {"kB", 1e3L},     {"KB", 1e3L},     {"MB", 1e6L},     {"GB", 1e9L},
    {"TB", 1e12L},    {"Mbit", 125e3L}, {"Gbit", 125e6L}};  // the last two: of rates

// "64MiB", "64MB", "1.5GiB", "1000000", "512B" in bytes, rounded down; from 1 to 2^63 - 1.
inline int64_t read_size(std::string_view text) {
  return int64_t(read_scaled(
      text, std::span(kByteUnits).first(11),
      "is not a size; write bytes or a unit: KiB to TiB (of 1,024), kB to TB (of 1,000)", 1,
      0x1p63L - 1));
}

// "100MB/s", "1GiB", "10Gbit/s" in bytes per second; at least 1.
inline double read_rate(std::string_view text) {
  text.remove_suffix(text.ends_with("/s") ? 2 : 0);
  return double(read_scaled(
      text, std::span(kByteUnits).subspan(1),
      "is not a rate; write a number and a unit, such as 100MB/s, 1GiB/s or 10Gbit/s", 1, 1e18L));
}

// "50us", "2ms", "1.5s" in seconds, up to an hour.
inline double read_time(std::string_view text) {
  constexpr NumberUnit units[] = {{"ns", 1e-9L}, {"us", 1e-6L}, {"ms", 1e-3L}, {"s", 1}};
  constexpr const char* wrong =
      "is not a time up to an hour; write a number and a unit, such as 50us, 2ms or 1s";
  return text == "0" ? 0 : double(read_scaled(text, units, wrong, 0, 3600));
}

// A finite number from 0 up: "0.8", "1e-3".
inline double read_real(std::string_view text) {
  constexpr NumberUnit units[] = {{"", 1}};
  return double(
      read_scaled(text, units, "is not a number from 0 up", 0, std::numeric_limits<double>::max()));
}

// Seconds up to 1e6, as milliseconds, rounded up.
inline std::chrono::milliseconds read_seconds(std::string_view text) {
  constexpr NumberUnit units[] = {{"", 1000}};
  constexpr const char* wrong = "is not a number of seconds from 0 to 1e6";
  return std::chrono::milliseconds(int64_t(std::ceil(read_scaled(text, units, wrong, 0, 1e9L))));
}

// A seed: a count up to 2^64 - 1.
inline uint64_t read_seed(std::string_view text) { return read_count<uint64_t>(text); }

}  // namespace zl::cli
