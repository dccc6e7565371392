// zerolab data, and files whose names users give.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;

namespace fs = std::filesystem;
namespace {

// A command that writes weights; the file follows.
std::string exporting(const ScratchFolder& folder) {
  REQUIRE(call(tiny_run(1, "-q --out " + (folder / "run"))).code == 0);
  return "model export " + (folder / "run/model.safetensors") + " ";
}

}  // namespace

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
  std::vector<int> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = 200;  // of llm.c
  const std::string zeros(400, '\0');
  write_file(folder / "llmc.bin", std::string((const char*)header.data(), 1024) + zeros);
  write_file(folder / "raw.bin", zeros);
  CHECK(contains(call("train --model tiny --steps 1 --data " + (folder / "[lr]*.bin")).err,
                 "raw.bin is raw tokens: their tokens may mean other things\n"));
}

TEST_CASE("--force keeps a symbolic link and the mode of the file", "[zerolab]") {
  const ScratchFolder folder;
  const std::string exports = exporting(folder);
  fs::create_directory(folder / "real");
  const std::string target = write_file(folder / "real/t", "old"), link = folder / "l";
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(target, link);
  REQUIRE(call(exports + "--force " + link).code == 0);
  CHECK(fs::is_symlink(link));
  CHECK(read_file(target).size() > 1000);
  CHECK(fs::status(target).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(files_in(folder / "real") == Words{"t"});
  CHECK(call(exports + (folder / std::string(255, 'n'))).code == 0);  // the longest name
}

TEST_CASE("of several programs that write one file at once, one succeeds; a full disk leaves none",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string exports = "\"$ZEROLAB\" " + exporting(folder);
  const Finished finished = shell("cd " + folder.path() + "; for i in 1 2 3 4; do { " + exports +
                                  "x >/dev/null 2>&1; echo $?; } & done; wait");
  const auto codes = lines(finished.out);
  REQUIRE(codes.size() == 4);
  CHECK(std::ranges::count(codes, "0") == 1);
  CHECK(files_in(folder.path()) == words("run x"));
  const std::string out = folder / "y";
  const Finished full = shell("ulimit -f 8; " + exports + out);
  CHECK(full.code == 74);
  check_says(full.err, {out, "cannot be written"});
  CHECK(files_in(folder.path()) == words("run x"));
}

}  // namespace cli
