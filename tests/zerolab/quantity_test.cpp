// Numbers as people type them.

#include "tutorials/zerolab/cli/quantity.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>

#include "tutorials/zerolab/cli/nearest.h"

namespace zl::cli {

TEST_CASE("a seed is any whole number up to 2^64 - 1, as in a configuration file", "[zerolab]") {
  CHECK(read_seed("0") == 0);
  CHECK(read_seed("9223372036854775808") == uint64_t(1) << 63);
  CHECK(read_seed("18446744073709551615") == std::numeric_limits<uint64_t>::max());
  CHECK(read_seed("5e8") == 500'000'000);
  CHECK_THROWS_AS(read_seed("18446744073709551616"), InputError);
  CHECK_THROWS_AS(read_seed("-1"), InputError);
}

TEST_CASE("a count is a whole number, however it is written", "[zerolab]") {
  const std::pair<const char*, int64_t> table[] = {
      {"0", 0},
      {"1", 1},
      {"007", 7},
      {"100", 100},
      {"5e8", 500'000'000},
      {"5E8", 500'000'000},
      {"5e+2", 500},
      {"1.5e3", 1500},
      {"1.50", -1},
      {"500M", 500'000'000},
      {"1.5K", 1500},
      {"2k", 2000},
      {"7.5e9", 7'500'000'000},
      {"7.5B", 7'500'000'000},
      {"7.5G", 7'500'000'000},
      {"1T", 1'000'000'000'000},
      {"100e-2", 1},
      {"1.0", 1},
      {"0e9", 0},
      {"0e400", 0},
      {"9007199254740993", 9007199254740993},  // not a double
      {"9223372036854775807", 9223372036854775807}};
  for (const auto& [text, value] : table) {
    CAPTURE(text);
    if (value < 0)
      CHECK_THROWS_AS(read_count(text), InputError);
    else
      CHECK(read_count(text) == value);
  }
}

TEST_CASE(
    "what is not a count is refused, also where a double would overflow or a sign would slip "
    "through",
    "[zerolab]") {
  for (const char* text : {"",
                           "-1",
                           "+1",
                           "abc",
                           "1e",
                           "e5",
                           ".",
                           "1.5",
                           "0.1",
                           "1_000",
                           "1,000",
                           "1 ",
                           " 1",
                           "5e8x",
                           "0x10",
                           "nan",
                           "inf",
                           "1e400",
                           "1e400M",
                           "9223372036854775808",
                           "99999999999999999999",
                           "1e19",
                           "1e-400",
                           "10T0",
                           "64MiB",
                           "1e99999999999999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read_count(text), InputError);
  }
}

TEST_CASE("a count outside its range names the bound", "[zerolab]") {
  const auto message = [](const char* text) {
    try {
      read_count(text, 1, 64);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message("0") == "'0' is too small; it must be at least 1");
  CHECK(message("65") == "'65' is too large; it must be at most 64");
  CHECK(message("64").empty());
}

TEST_CASE("a size has binary and decimal units, and is rounded down to whole bytes", "[zerolab]") {
  const std::pair<const char*, int64_t> table[] = {{"1", 1},
                                                   {"512B", 512},
                                                   {"1000000", 1'000'000},
                                                   {"1e6", 1'000'000},
                                                   {"64KiB", 65536},
                                                   {"64MiB", 67108864},
                                                   {"64MB", 64'000'000},
                                                   {"64kB", 64'000},
                                                   {"64KB", 64'000},
                                                   {"1.5GiB", 1610612736},
                                                   {"1.5GB", 1'500'000'000},
                                                   {"2TiB", 2199023255552},
                                                   {"1TB", 1'000'000'000'000},
                                                   {"0.1GiB", 107374182},
                                                   {"0.5KiB", 512},
                                                   {"1e3MiB", 1048576000}};
  for (const auto& [text, bytes] : table) {
    CAPTURE(text);
    CHECK(read_size(text) == bytes);
  }
}

TEST_CASE("what is not a size is refused", "[zerolab]") {
  for (const char* text : {"", "-64MiB", "64M", "64mib", "64MiBs", "MiB", "64 MiB", "0", "0.4B",
                           "1e400", "1e19", "9000000TiB", "8388608TiB", "inf"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read_size(text), InputError);
  }
}

TEST_CASE("a real number is finite and not negative", "[zerolab]") {
  CHECK(read_real("0.8") == 0.8);
  CHECK(read_real("1e-3") == 1e-3);
  CHECK(read_real("0") == 0);
  for (const char* text : {"", "-1", "+1", "1e400", "nan", "inf", "1s", "0x1p3"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read_real(text), InputError);
  }
}

TEST_CASE("a mistyped word finds its neighbour, a strange one nothing", "[zerolab]") {
  const std::vector<std::string> commands = {"train", "compare", "doctor", "plan"};
  CHECK(nearest("trian", commands) == "train");
  CHECK(nearest("compar", commands) == "compare");
  CHECK(nearest("doktor", commands) == "doctor");
  CHECK(nearest("comp", commands) == "compare");
  CHECK(nearest("launchpad", commands).empty());
  CHECK(edit_distance("ab", "ba") == 1);
  CHECK(edit_distance("", "abc") == 3);
}

TEST_CASE("a rate is bytes or bits per second with their unit", "[zerolab]") {
  const std::pair<const char*, double> table[] = {
      {"100MB/s", 100e6}, {"100MB", 100e6},     {"1GiB/s", 0x1p30}, {"1.5kB/s", 1500},
      {"1B/s", 1},        {"10Gbit/s", 1.25e9}, {"8Mbit", 1e6},     {"2TB/s", 2e12}};
  for (const auto& [text, value] : table) {
    CAPTURE(text);
    CHECK(read_rate(text) == value);
  }
  for (const char* text : {"", "100", "0MB/s", "-1MB/s", "MB/s", "100MB/h", "100 MB/s", "fast",
                           "100/s", "1e30GB/s", "inf"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read_rate(text), InputError);
  }
}

TEST_CASE("a time has a unit", "[zerolab]") {
  const std::pair<const char*, double> table[] = {{"0", 0},        {"50us", 50e-6}, {"2ms", 2e-3},
                                                  {"1.5s", 1.5},   {"7ns", 7e-9},   {"0us", 0},
                                                  {"3600s", 3600}, {"0.5ms", 5e-4}};
  for (const auto& [text, value] : table) {
    CAPTURE(text);
    CHECK(read_time(text) == value);
  }
  for (const char* text : {"", "50", "us", "-1us", "50 us", "2h", "3601s", "1e400s", "soon"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read_time(text), InputError);
  }
}

}  // namespace zl::cli
