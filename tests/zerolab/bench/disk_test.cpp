// bench disk runs, and its numbers are consistent. How fast the disk is, is not tested.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/nn/scratch_folder.h"
#include "tests/zerolab/process.h"

using namespace cli;

TEST_CASE("bench disk times reads, writes and updates, and leaves nothing", "[zerolab]") {
  const zl::ScratchFolder folder;
  const Finished finished = zerolab({"bench", "disk", "--dir", folder.path(""), "--size", "5MiB",
                                     "--sub-group-size", "100000", "--rounds", "2", "--json"});
  CHECK(finished.code == 0);
  CHECK(folder.names().empty());
  const auto json = nlohmann::json::parse(finished.out);
  CHECK((json["command"] == "bench disk" && json["size_bytes"] == 5 << 20));
  std::vector<std::string> names;
  for (const auto& row : json["rows"]) {
    names.push_back(row["what"]);
    CHECK(row["seconds"]["min"] <= row["seconds"]["median"]);
    if (row["what"] == "update on disk, serial")
      CHECK(row["bytes_per_second"]["max"].get<double>() ==
            2 * double(5 << 20) / row["seconds"]["min"].get<double>());
  }
  for (const char* name :
       {"write", "read", "update in memory", "update on disk, serial", "update on disk, pipelined"})
    CHECK(std::ranges::count(names, name) == 1);
}

TEST_CASE("bench disk says what it cannot do", "[zerolab]") {
  const Finished absent = zerolab({"bench", "disk", "--dir", "/absent/folder"});
  CHECK((absent.code == 2 && contains(absent.err, "/absent/folder is not a folder")));
  const Finished large = zerolab({"bench", "disk", "--size", "1024TiB"});
  CHECK((large.code == 2 && contains(large.err, "left, but four files of 1.00 PiB")));
}
