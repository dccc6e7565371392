// Parts of the command line: numbers as people type them, and the sentence of each kind of error.

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <filesystem>
#include <string>

#include "tests/zerolab/command.h"
#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/parse_error.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

// "TEXT=VALUE" words, which `read` must read so, and texts that it must refuse.
template <class Read>
void check_reads(Read read, const std::string& right, const std::string& wrong) {
  for (const std::string& row : ::cli::words(right)) {
    CAPTURE(row);
    const size_t end = row.find('=');
    CHECK(double(read(row.substr(0, end))) == std::stod(row.substr(end + 1)));
  }
  for (const std::string& text : ::cli::words(wrong)) {
    CAPTURE(text);
    CHECK_THROWS_AS(read(text), InputError);
  }
  CHECK_THROWS_AS(read(""), InputError);
}

template <class Error>
Failure failure(const Error& error, int signal = 0) {
  return failure_of(std::make_exception_ptr(error), signal);
}

}  // namespace

TEST_CASE("a seed is any whole number up to 2^64 - 1, as in a configuration file", "[zerolab]") {
  CHECK(read_seed("9223372036854775808") == uint64_t(1) << 63);
  CHECK(read_seed("18446744073709551615") == std::numeric_limits<uint64_t>::max());
  check_reads(read_seed, "0=0 5e8=5e8", "18446744073709551616 -1");
}

// Also where a double would overflow, or a sign would slip through.
TEST_CASE("a count is a whole number, however it is written", "[zerolab]") {
  const auto read = [](const std::string& text) { return read_count(text); };
  check_reads(
      read,
      "0=0 1=1 007=7 100=100 5e8=5e8 5E8=5e8 5e+2=500 1.5e3=1500 500M=5e8 1.5K=1500 2k=2000 "
      "7.5e9=75e8 7.5B=75e8 7.5G=75e8 1T=1e12 100e-2=1 1.0=1 0e9=0 0e400=0",
      "1.50 -1 +1 abc 1e e5 . 1.5 0.1 1_000 1,000 '1 ' ' 1' 5e8x 0x10 nan inf 1e400 1e400M "
      "9223372036854775808 99999999999999999999 1e19 1e-400 10T0 64MiB "
      "1e99999999999999999999");
  CHECK(read_count("9007199254740993") == 9007199254740993);  // not a double
  CHECK(read_count("9223372036854775807") == 9223372036854775807);
  CHECK(read_count("64", 1, 64) == 64);
}

TEST_CASE("a size has binary and decimal units, and is rounded down to whole bytes", "[zerolab]") {
  check_reads(read_size,
              "1=1 512B=512 1000000=1e6 1e6=1e6 64KiB=65536 64MiB=67108864 64MB=64e6 64kB=64e3 "
              "64KB=64e3 1.5GiB=1610612736 1.5GB=15e8 2TiB=2199023255552 1TB=1e12 0.1GiB=107374182 "
              "0.5KiB=512 1e3MiB=1048576000",
              "-64MiB 64M 64mib 64MiBs MiB '64 MiB' 0 0.4B 1e400 1e19 9000000TiB 8388608TiB inf");
}

TEST_CASE("a real number is finite and not negative, a rate and a time have units", "[zerolab]") {
  check_reads(read_real, "0.8=0.8 1e-3=1e-3 0=0", "-1 +1 1e400 nan inf 1s 0x1p3");
  check_reads(read_rate,
              "100MB/s=100e6 100MB=100e6 1GiB/s=0x1p30 1.5kB/s=1500 1B/s=1 10Gbit/s=1.25e9 "
              "8Mbit=1e6 2TB/s=2e12",
              "100 0MB/s -1MB/s MB/s 100MB/h '100 MB/s' fast 100/s 1e30GB/s inf");
  check_reads(read_time, "0=0 50us=50e-6 2ms=2e-3 1.5s=1.5 7ns=7e-9 0us=0 3600s=3600 0.5ms=5e-4",
              "50 us -1us '50 us' 2h 3601s 1e400s soon");
  // Milliseconds, rounded up: 0 would mean that there is no limit.
  check_reads([](const std::string& text) { return read_seconds(text).count(); },
              "0=0 0.3=300 0.0001=1 60=60000 1e6=1e9", "1000001 -1 1s soon");
}

TEST_CASE("a file has its name only when it is complete, and replaces none unasked", "[zerolab]") {
  const ::cli::ScratchFolder folder;
  const std::string path = folder / "new";
  const OutputFile file(path, "", false);
  file.write([&](const std::string& name) {
    CHECK_FALSE(std::filesystem::exists(path));
    ::cli::write_file(name, "all");
  });
  CHECK(::cli::read_file(path) == "all");
  CHECK(::cli::files_in(folder.path()) == ::cli::words("new"));
  CHECK_THROWS_AS(file.write([&](const auto& name) { ::cli::write_file(name, "x"); }), OutputError);
  CHECK(::cli::read_file(path) == "all");
  CHECK(::cli::files_in(folder.path()) == ::cli::words("new"));
}

TEST_CASE("a mistyped word finds its neighbour, a strange one nothing", "[zerolab]") {
  const std::vector<std::string> commands = {"train", "compare", "doctor", "plan"};
  for (const auto& [word, meant] : {std::pair{"trian", "train"},
                                    {"compar", "compare"},
                                    {"doktor", "doctor"},
                                    {"comp", "compare"},
                                    {"pl", ""},
                                    {"launchpad", ""}}) {
    CAPTURE(word);
    CHECK(did_you_mean(word, commands) ==
          (*meant ? "; did you mean '" + std::string(meant) + "'?" : ""));
  }
  CHECK(zl::nearest_name("bf61", {"fp32", "bf16"}) == "bf16");  // a swap is one edit
}

TEST_CASE("a broken contract points to the user's model, and is not called a bug of zerolab",
          "[zerolab]") {
  const Failure contract = failure(std::invalid_argument("matmul: shapes (2, 3) and (4, 5)"));
  CHECK(contract.code == 70);
  ::cli::check_says(contract.text,
                    {"matmul: shapes (2, 3) and (4, 5)",
                     "If you changed a model, a stage or an optimizer, look there first"});
  CHECK_FALSE(::cli::contains(contract.text, "This is a bug in zerolab"));
  ::cli::check_says(failure(std::runtime_error("x")).text, {"This is a bug in zerolab"});
}

TEST_CASE("errors have codes of their kind, and no sentence blames who is not to blame",
          "[zerolab]") {
  const Failure threads =
      failure(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  CHECK(threads.code == 4);
  ::cli::check_says(threads.text, {"the system refused another thread", "try fewer ranks"});
  CHECK(failure(std::system_error(std::make_error_code(std::errc::io_error))).code == 70);

  const auto of_path = [](std::errc code) {
    return failure(
        std::filesystem::filesystem_error("status", "runs/a", std::make_error_code(code)));
  };
  CHECK(of_path(std::errc::permission_denied).code == 2);
  CHECK(of_path(std::errc::filename_too_long).text == "runs/a: File name too long");
  CHECK(of_path(std::errc::no_space_on_device).code == 74);  // an output's

  CHECK(failure(OutputError("full")).code == 74);
  CHECK(failure(InputError("wrong")).code == 2);
  CHECK(failure(std::bad_alloc()).code == 3);
  CHECK(failure(CommunicationError("late")).code == 4);
  CHECK(failure(CommunicationError("late"), SIGTERM).code == 143);
  CHECK(failure(Interrupted()).code == 130);
  CHECK(failure(Interrupted(), SIGHUP).text == "ended by SIGHUP");
}

}  // namespace zl::cli
