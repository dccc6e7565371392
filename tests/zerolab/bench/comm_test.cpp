// bench comm: nccl-tests' output format, the JSON document, refusals. Speed is not tested.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

Finished comm(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"bench", "comm"});
  return zerolab(flags);
}

}  // namespace

TEST_CASE("bench comm --json has a row for each collective and size, with the bandwidths of a ring",
          "[zerolab]") {
  const Finished finished =
      comm({"--ranks", "3", "--collective",
            "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,send_receive", "-b", "1K",
            "-e", "16KiB", "-n", "3", "-w", "1", "--json", "-q"});
  REQUIRE(finished.code == 0);
  CHECK(finished.err.empty());
  const Json json = Json::parse(finished.out);
  CHECK((json["command"] == "bench comm" && json["ok"] == true && json["ranks"] == 3 &&
         json["backend"] == "threads" && json["ordered"] == true));
  const std::vector<std::pair<std::string, double>> factors = {
      {"all_reduce", 4.0 / 3}, {"all_gather", 2.0 / 3}, {"reduce_scatter", 2.0 / 3},
      {"broadcast", 1},        {"all_to_all", 2.0 / 3}, {"send_receive", 1}};
  REQUIRE(json["results"].size() == 3 * factors.size());  // 1, 4 and 16 KiB
  for (size_t i = 0; i < json["results"].size(); ++i) {
    const Json& row = json["results"][i];
    CAPTURE(row.dump());
    CHECK(row["collective"] == factors[i / 3].first);
    CHECK(row["wrong"] == 0);
    CHECK(row["bytes"] == 4 * row["elements"].get<int64_t>());
    const bool slices = row["collective"] == "all_gather" ||
                        row["collective"] == "reduce_scatter" || row["collective"] == "all_to_all";
    const int64_t elements = int64_t(256) << (2 * (i % 3));
    CHECK(row["elements"] == (slices ? elements / 3 * 3 : elements));
    const double seconds = row["seconds"]["median"], rate = row["algorithm_bytes_per_second"],
                 bus = row["bus_bytes_per_second"];
    CHECK(seconds > 0);
    CHECK(std::abs(rate * seconds - row["bytes"].get<double>()) <
          1e-6 * row["bytes"].get<double>());
    CHECK(std::abs(bus / rate - factors[i / 3].second) < 1e-9);
  }
}

TEST_CASE("bench comm prints nccl-tests' output format", "[zerolab]") {
  const Finished finished =
      comm({"--ranks", "2", "--dtype", "bf16", "-b", "1000", "-f", "1", "-n", "2", "-w", "0"});
  CHECK(finished.code == 0);
  CHECK(contains(finished.out,
                 "#       size         count      type   redop     time   algbw   busbw #wrong\n"
                 "#        (B)    (elements)                       (us)  (GB/s)  (GB/s)\n"
                 "all_reduce\n        1000           500  bfloat16     sum"));
  CHECK(contains(finished.out, "      0\n# average bus bandwidth"));
  CHECK(contains(finished.err, "1/1 all_reduce of 1000 B"));
  CHECK(contains(comm({"--ranks", "2", "-c", "0", "-f", "1", "-n", "1"}).out, "    N/A\n"));
}

TEST_CASE("bench comm refuses what it cannot measure", "[zerolab]") {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& part) {
    const Finished finished = comm(flags);
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, part));
  };
  refused({"--collective", "all_reduce,gather"},
          "--collective: 'gather' is none of all_reduce, all_gather, ");
  refused({"-b", "1M", "-e", "8K"}, "--min-bytes 1048576 is more than --max-bytes 8192");
  refused({"-b", "8Q"}, "--min-bytes: '8Q' has no known unit");
  refused({"--factor", "0"}, "--factor: '0' is too small");
  refused({"-b", "4", "-e", "8", "--collective", "all_gather"},
          "has an element of float for each of 4 ranks");
  refused({"--ranks", "1", "--collective", "send_receive"}, "send_receive needs at least 2 ranks");
  refused({"-e", "1000T", "-b", "900TiB"}, "--max-bytes: '1000T' has no known unit");
  refused({"-e", "1000TiB"}, "takes up to twice as much on each of 4 ranks, but only ");
  refused({"--unordered"}, "--unordered leaves sums to NCCL");
  refused({"--backend", "nccl"}, "--backend nccl: ");
  refused({"--device", "cuda"}, "--device cuda: ");
}

}  // namespace cli
