// bench machine: the limits are consistent with each other. Their values are not tested.

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

Json machine(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"bench", "machine", "--quick", "--json", "-q"});
  const Finished finished = zerolab(flags);
  CAPTURE(flags, finished.err);
  REQUIRE(finished.code == 0);
  CHECK(finished.err.empty());
  return Json::parse(finished.out);
}

}  // namespace

TEST_CASE("bench machine --json has each limit on one core and on all cores, with a spread",
          "[zerolab]") {
  if (std::thread::hardware_concurrency() < 2) SKIP("this machine has one core");
  const Json json = machine({"--cores", "2", "--samples", "3", "--array", "3MiB"});
  CHECK(json["command"] == "bench machine");
  CHECK(json["cores"] == 2);
  CHECK(json["page_bytes"] == sysconf(_SC_PAGESIZE));
  std::set<std::string> limits;
  for (const Json& limit : json["limits"]) {
    CAPTURE(limit.dump());
    limits.insert(limit["what"]);
    for (const char* where : {"one_core", "all_cores"}) {
      CHECK(limit[where]["min"] > 0.0);
      CHECK(limit[where]["min"] <= limit[where]["median"]);
      CHECK(limit[where]["median"] <= limit[where]["max"]);
    }
    if (limit["what"] == "copy_memory") CHECK(limit["over_bytes"] == 2 * (3 << 20));
    if (limit["what"] == "triad_memory") CHECK(limit["over_bytes"] == 3 * (3 << 20));
    if (limit["what"] == "read_memory") CHECK(limit["over_bytes"] == 3 << 20);
  }
  for (const char* what : {"product", "copy_memory", "triad_memory", "read_memory", "first_touch"})
    CHECK(limits.contains(what));
  for (const char* how : {"spinning", "sleeping"})
    CHECK(json["hand_over_seconds"][how]["median"] > 0.0);
}

TEST_CASE("our matmul stays below the best sample of the multiply-adds", "[zerolab]") {
  const Json json = machine({"--cores", "1"});
  CHECK(json["hand_over_seconds"].empty());
  if (json["operations_per_second"].is_null()) SKIP("this CPU has no loop of multiply-adds");
  double peak = 0, product = 0;
  for (const Json& limit : json["limits"]) {
    CHECK(limit["one_core"] == limit["all_cores"]);
    if (limit["what"].get<std::string>().starts_with("multiply_add"))
      peak = std::max(peak, limit["one_core"]["max"].get<double>());
    if (limit["what"] == "product") product = limit["one_core"]["median"];
  }
  CHECK(json["operations_per_second"] == peak);
  CHECK(json["product_share_of_peak"]["one_core"] == product / peak);
  // If a compiler kept the multiply-adds in memory and not in registers, they would reach less than
  // half of the peak, and the matmul would be faster.
  CHECK(product < peak);
}

TEST_CASE("bench machine prints a table and progress, and refuses impossible limits", "[zerolab]") {
  if (std::thread::hardware_concurrency() < 2) SKIP("this machine has one core");
  const Finished table = zerolab({"bench", "machine", "--quick", "--cores", "2", "--samples", "3"});
  CHECK(table.code == 0);
  for (const char* part :
       {"1 core", "2 cores", "min–max", "our matmul, 512 × 512", "GFLOP/s", "copy in memory",
        "GB/s", "kernels compiled for ", "Latency to a sleeping thread on another core: "})
    CHECK(contains(table.out, part));
  CHECK(contains(table.err, "our matmul, 512 × 512, 1 core, ETA "));
  CHECK_FALSE(
      contains(zerolab({"bench", "machine", "--quick", "--cores", "1", "-q"}).out, "2 cores"));
  const auto refused = [](const std::vector<std::string>& flags, const std::string& part) {
    std::vector<std::string> arguments = {"bench", "machine"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Finished finished = zerolab(arguments);
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, part));
  };
  refused({"--array", "100KiB"}, "--array: '100KiB' is less than 1 MiB and would stay in a cache");
  refused({"--array", "100TiB"}, "--array 100.00 TiB is needed three times, but only ");
  refused({"--cores", "0"}, "--cores: '0' is too small; it must be at least 1");
  refused({"--cores", "1024"}, "--cores 1024: this process may run on ");
  refused({"--sample", "3"}, "has no flag '--sample'");
}

}  // namespace cli
