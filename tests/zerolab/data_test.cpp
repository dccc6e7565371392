// zerolab data: descriptions of data, and synthetic text of known entropy.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/data/markov.h"
#include "nn/data/windows.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

nlohmann::json json_of(const Finished& finished) {
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(finished.err.empty());
  return nlohmann::json::parse(finished.out);
}

void check_refused(const std::vector<std::string>& arguments, const std::string& part) {
  const Finished finished = zerolab(arguments);
  CAPTURE(arguments, finished.err);
  CHECK(finished.code == 2);
  CHECK(finished.out.empty());
  CHECK(finished.err.starts_with("zerolab: "));
  CHECK(contains(finished.err, part));
  CHECK(lines(finished.err).size() <= 2);
}

}  // namespace

TEST_CASE("data info counts tokens, vocabulary and windows", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path =
      write_file(folder / "input.txt", "abracadabra, abracadabra");  // 24 bytes
  const auto json = json_of(zerolab({"data", "info", path, "--block-size", "5", "--json"}));
  CHECK((json["schema"] == 1 && json["command"] == "data info" && json["data"] == path));
  CHECK((json["tokens"] == 24 && json["distinct_tokens"] == 7 && json["largest_token"] == 'r'));
  CHECK((json["block_size"] == 5 && json["windows"] == 4 && json["held_out_windows"] == 1 &&
         json["training_windows"] == 3));
  REQUIRE(json["files"].size() == 1);
  CHECK((json["files"][0]["format"] == "text" && json["files"][0]["tokens"] == 24 &&
         json["files"][0]["windows"] == 4));
  const double entropy = -(10 * std::log(10. / 24) + 4 * 2 * std::log(4. / 24) +
                           2 * 2 * std::log(2. / 24) + 2 * std::log(1. / 24)) /
                         24;
  CHECK(std::abs(json["frequency_entropy"].get<double>() - entropy) < 1e-12);
  const Finished text = zerolab({"data", "info", path, "--block-size", "5"});
  for (const char* part : {"text, 24 tokens, 4 windows", "7 different tokens, the largest is 114",
                           "3 train and the last 1 is held out"}) {
    CAPTURE(part, text.out);
    CHECK(contains(text.out, part));
  }
}

TEST_CASE("the windows that data info counts are those that training reads", "[zerolab]") {
  const ScratchFolder folder;
  write_file(folder / "a.txt", std::string(101, 'a'));
  write_file(folder / "b.txt", std::string(100, 'b'));
  write_file(folder / "c.txt", "c");
  const std::string pattern = folder / "*.txt";
  for (const int block_size : {1, 2, 10, 99, 100}) {
    CAPTURE(block_size);
    const auto json = json_of(
        zerolab({"data", "info", pattern, "--block-size", std::to_string(block_size), "--json"}));
    const zl::Windows all(zl::TokenData::open(pattern), block_size);
    CHECK(json["windows"] == all.training());
    CHECK(json["files"].size() == 3);
    if (all.training() < 2) continue;
    const zl::Windows split(zl::TokenData::open(pattern), block_size, {.hold_out = true});
    CHECK(json["held_out_windows"] == split.held_out());
    CHECK(json["training_windows"] == split.training());
  }
  CHECK(contains(zerolab({"data", "info", pattern, "--block-size", "101"}).out, "none of T = 101"));
}

TEST_CASE("token files are recognised, and their vocabulary is at least what they hold",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string path =
      write_file(folder / "train.bin", std::string("\x01\x00\x50\xc3\x02\x00", 6));
  const auto json = json_of(zerolab({"data", "info", path, "--json"}));
  CHECK((json["files"][0]["format"] == "raw tokens" && json["tokens"] == 3 &&
         json["largest_token"] == 50000 && json["windows"] == 0));
  CHECK(contains(zerolab({"data", "info", path}).out, "--vocab-size 50001 or more"));
}

TEST_CASE("without a file data info describes the text that ships", "[zerolab]") {
  const auto json = json_of(zerolab({"data", "info", "--json"}));
  CHECK(json["tokens"] > 10'000);
  CHECK(json["windows"] > 100);
}

TEST_CASE("data synth writes the source's text and prints its entropy", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = folder / "s.txt";
  const zl::MarkovSource source(7);
  const auto json =
      json_of(zerolab({"data", "synth", path, "--tokens", "1e5", "--seed", "7", "--json"}));
  CHECK((json["tokens"] == 100'000 && json["seed"] == 7 && json["entropy"] == source.entropy()));
  CHECK((read_file(path) == source.generate(100'000)));
  CHECK((read_file(path) != zl::MarkovSource(8).generate(100'000)));
  const Finished text =
      zerolab({"data", "synth", folder / "t.txt", "--tokens", "50", "--seed", "7"});
  CHECK(contains(text.out, "entropy " + std::to_string(source.entropy()) + " nats per token"));
  CHECK((read_file(folder / "t.txt") == read_file(path).substr(0, 50)));
}

TEST_CASE("data synth writes tokens under a name that means tokens", "[zerolab]") {
  const ScratchFolder folder;
  CHECK(zerolab({"data", "synth", folder / "s.bin", "--tokens", "1000"}).code == 0);
  CHECK(zerolab({"data", "synth", folder / "s.txt", "--tokens", "1000"}).code == 0);
  const zl::TokenData wide = zl::TokenData::open(folder / "s.bin"),
                      text = zl::TokenData::open(folder / "s.txt");
  std::vector<int32_t> a(1000), b(1000);
  REQUIRE(wide.tokens() == 1000);
  wide.read(0, 0, a);
  text.read(0, 0, b);
  CHECK(a == b);
}

TEST_CASE("data synth replaces nothing without --force and leaves nothing half-written",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = write_file(folder / "mine.txt", "mine");
  check_refused({"data", "synth", path}, "exists; --force replaces it");
  check_refused({"data", "synth", folder.path()}, "is a folder");
  check_refused({"data", "synth", folder / "no/where.txt"}, "there is no folder");
  CHECK((read_file(path) == "mine"));
  CHECK(zerolab({"data", "synth", path, "--tokens", "10", "--force"}).code == 0);
  CHECK((read_file(path).size() == 10));
  CHECK(files_in(folder.path()) == std::vector<std::string>{"mine.txt"});
}

TEST_CASE("of several programs that write one file at once, one succeeds", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = shell("cd " + folder.path() +
                                  "; for i in 1 2 3 4; do { \"$ZEROLAB\" data synth x.txt --tokens "
                                  "2e6 --seed $i >/dev/null 2>&1; echo $?; } & done; wait");
  const auto codes = lines(finished.out);
  REQUIRE(codes.size() == 4);
  CHECK(std::ranges::count(codes, "0") == 1);
  CHECK(files_in(folder.path()) == std::vector<std::string>{"x.txt"});
}

TEST_CASE("--force keeps a symbolic link and the mode of the file", "[zerolab]") {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  fs::create_directory(folder / "real");
  const std::string target = write_file(folder / "real/t.txt", "old"), link = folder / "l.txt";
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(target, link);
  REQUIRE(zerolab({"data", "synth", link, "--tokens", "10", "--force"}).code == 0);
  CHECK(fs::is_symlink(link));
  CHECK(read_file(target).size() == 10);
  CHECK(fs::status(target).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(files_in(folder / "real") == std::vector<std::string>{"t.txt"});
}

TEST_CASE("data synth refuses more tokens than the disk has room for, and takes long names",
          "[zerolab]") {
  const ScratchFolder folder;
  check_refused({"data", "synth", folder / "x.txt", "--tokens", "1e18"}, "but the disk of '");
  check_refused({"data", "synth", folder / "x.bin", "--tokens", "9e18"},
                " free; ask for fewer tokens");
  CHECK(files_in(folder.path()).empty());
  const std::string longest(255, 'n');
  CHECK(zerolab({"data", "synth", folder / longest, "--tokens", "10"}).code == 0);
  CHECK(files_in(folder.path()) == std::vector<std::string>{longest});
}

TEST_CASE("a full disk ends data synth with 74 and leaves nothing", "[zerolab]") {
  const ScratchFolder folder;
  const Finished full =
      shell("ulimit -f 8; $ZEROLAB data synth " + (folder / "x.txt") + " --tokens 1e6");
  CHECK(full.code == 74);
  CHECK(contains(full.err, folder / "x.txt"));
  CHECK(contains(full.err, "cannot be written"));
  CHECK(files_in(folder.path()).empty());
}

TEST_CASE("wrong data and wrong flags of data end in one sentence", "[zerolab]") {
  const ScratchFolder folder;
  write_file(folder / "empty.txt", "");
  write_file(folder / "odd.bin", "abc");
  check_refused({"data", "info", folder / "missing.txt"}, folder / "missing.txt");
  check_refused({"data", "info", folder / "*.nothing"}, folder / "*.nothing");
  check_refused({"data", "info", folder / "empty.txt"}, "empty");
  check_refused({"data", "info", folder / "odd.bin"}, "odd");
  check_refused({"data", "info", folder.path()}, folder.path());
  check_refused({"data", "info", "a", "--block-size", "0"}, "--block-size: '0' is too small");
  check_refused({"data", "synth"}, "zerolab data synth OUT");
  check_refused({"data", "synth", folder / "s", "--tokens", "many"},
                "--tokens: 'many' is not a count");
  check_refused({"data", "synth", folder / "s", "--seed", "-1"},
                "--seed: '-1' is not a whole number");
  check_refused({"data"}, "needs a command: info, synth");
  check_refused({"data", "sinth"}, "did you mean 'synth'?");
}

TEST_CASE("the help of data teaches with examples, in lines that fit", "[zerolab]") {
  for (const char* command : {"info", "synth"}) {
    const Finished help = zerolab({"data", command, "--help"});
    CHECK(help.code == 0);
    CHECK(contains(help.out, std::string("  zerolab data ") + command + " "));
    for (const std::string& line : lines(help.out)) {
      CAPTURE(line);
      CHECK(line.size() <= 120);
    }
  }
}

}  // namespace cli
