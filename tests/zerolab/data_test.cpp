// zerolab data: descriptions of data, and synthetic text of known entropy.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/data/markov.h"
#include "nn/data/token_data.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;

namespace fs = std::filesystem;

TEST_CASE("data info counts tokens, vocabulary and windows", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path =
                        write_file(folder / "input.txt", "abracadabra, abracadabra"),  // 24 bytes
      line = "data info --block-size 5 " + path;
  const Json json = Json::parse(document(line));
  CHECK((json["schema"] == 1 && json["command"] == "data info" && json["data"] == path));
  CHECK((json["tokens"] == 24 && json["distinct_tokens"] == 7 && json["largest_token"] == 'r'));
  CHECK((json["block_size"] == 5 && json["windows"] == 4 && json["held_out_windows"] == 1 &&
         json["training_windows"] == 3));
  REQUIRE(json["files"].size() == 1);
  const Json& file = json["files"][0];
  CHECK((file["format"] == "text" && file["tokens"] == 24 && file["windows"] == 4));
  const double entropy = -(10 * std::log(10. / 24) + 4 * 2 * std::log(4. / 24) +
                           2 * 2 * std::log(2. / 24) + 2 * std::log(1. / 24)) /
                         24;
  CHECK(std::abs(json["frequency_entropy"].get<double>() - entropy) < 1e-12);
  check_says(call(line).out, {"\ndistinct tokens    7\n", "\nlargest token      114\n",
                              "\nheld out windows   1\n", "\ntraining windows   3\n"});
  CHECK(contains(call("data info --block-size 24 " + path).out,
                 "no file has more than 24 tokens; use a smaller --block-size"));
  const Json shipped = Json::parse(document("data info"));  // the text that comes with zerolab
  CHECK((shipped["tokens"] > 10'000 && shipped["windows"] > 100));
}

TEST_CASE("token files are recognised, and their vocabulary is at least what they hold",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string path =
      write_file(folder / "train.bin", std::string("\x01\x00\x50\xc3\x02\x00", 6));
  const Json json = Json::parse(document("data info " + path));
  CHECK((json["files"][0]["format"] == "raw tokens" && json["tokens"] == 3 &&
         json["largest_token"] == 50000 && json["vocab_size"] == 50001 && json["windows"] == 0));
}

TEST_CASE("data synth writes the source's text or tokens and prints its entropy", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = folder / "s.txt", synth = "data synth --seed 7 ";
  const zl::MarkovSource source(7);
  const Json json = Json::parse(document(synth + "--tokens 1e5 " + path));
  CHECK((json["tokens"] == 100'000 && json["seed"] == 7 && json["entropy"] == source.entropy()));
  CHECK((read_file(path) == source.generate(100'000)));
  CHECK((read_file(path) != zl::MarkovSource(8).generate(100'000)));
  const std::string longest = folder / std::string(255, 'n');
  const Finished text = call(synth + "--tokens 50 " + longest);
  CHECK(contains(text.out, "entropy  " + std::to_string(source.entropy())));
  CHECK((read_file(longest) == read_file(path).substr(0, 50)));
  CHECK(call(synth + "--tokens 1000 " + (folder / "s.bin")).code == 0);  // a name that means tokens
  const zl::TokenData wide = zl::TokenData::open(folder / "s.bin"),
                      narrow = zl::TokenData::open(path);
  std::vector<int32_t> a(1000), b(1000);
  REQUIRE(wide.tokens() == 1000);
  wide.read(0, 0, a);
  narrow.read(0, 0, b);
  CHECK(a == b);
}

TEST_CASE("data synth --force keeps a symbolic link and the mode of the file", "[zerolab]") {
  const ScratchFolder folder;
  fs::create_directory(folder / "real");
  const std::string target = write_file(folder / "real/t.txt", "old"), link = folder / "l.txt";
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(target, link);
  REQUIRE(call("data synth --tokens 10 --force " + link).code == 0);
  CHECK(fs::is_symlink(link));
  CHECK(read_file(target).size() == 10);
  CHECK(fs::status(target).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(files_in(folder / "real") == Words{"t.txt"});
}

TEST_CASE("of several programs that write one file at once, one succeeds; a full disk leaves none",
          "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = shell("cd " + folder.path() +
                                  "; for i in 1 2 3 4; do { \"$ZEROLAB\" data synth x.txt --tokens "
                                  "2e6 --seed $i >/dev/null 2>&1; echo $?; } & done; wait");
  const auto codes = lines(finished.out);
  REQUIRE(codes.size() == 4);
  CHECK(std::ranges::count(codes, "0") == 1);
  CHECK(files_in(folder.path()) == Words{"x.txt"});
  const std::string out = folder / "y.txt";
  const Finished full = shell("ulimit -f 8; $ZEROLAB data synth " + out + " --tokens 1e6");
  CHECK(full.code == 74);
  check_says(full.err, {out, "cannot be written"});
  CHECK(files_in(folder.path()) == Words{"x.txt"});
}

}  // namespace cli
