// bench machine: the limits are consistent with each other, and --save writes a machine that plan
// reads, with plausible units. How fast this machine is, is not tested.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "stages/predict/clock/kernel_time.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

using zl::Machine, zl::KernelTimes;

const std::string kQuick = "bench machine --quick ";

std::string save(const std::string& file) { return kQuick + "--device cpu -q --save " + file; }

}  // namespace

TEST_CASE("bench machine has each limit on one core and on all cores, with a spread", "[zerolab]") {
  if (std::thread::hardware_concurrency() < 2) SKIP("this machine has one core");
  const ScratchFolder folder;
  const std::string disk = " --dir " + folder.path();
  const Json json = Json::parse(document(kQuick + "-q" + disk));
  const std::string cores = json["cores"].dump();
  CHECK((json["command"] == "bench machine" && json["cores"] >= 2 && json["schema"] == 3));
  CHECK((json["cache_bytes"]["L2"] >= 0 && json["page_bytes"] >= 4096));
  std::map<std::string, int> limits;  // "WHAT CORES"
  for (const Json& limit : json["limits"]) {
    CAPTURE(limit.dump());
    const std::string what = limit["what"];
    ++limits[what + " " + limit["cores"].dump()];
    CHECK(
        (limit["min"] > 0.0 && limit["min"] <= limit["median"] && limit["median"] <= limit["max"]));
    if (what == "copy_memory") CHECK(limit["over_bytes"] == 2 * (4 << 20));
    if (what.starts_with("disk")) CHECK(limit["over_bytes"] == 4 << 20);
  }
  for (const std::string& limit :
       words("'product 1' 'copy_memory 1' 'latency_spinning 2' 'disk_write 1' 'disk_read 1'"))
    CHECK(limits[limit] == 1);
  CHECK((limits["product " + cores] == 1 && limits["copy_memory " + cores] == 1));

  const Finished table = call(kQuick + disk);
  CHECK((table.code == 0 && files_in(folder.path()).empty()));
  check_says(table.out,
             {"cores", "median", "our matmul", "GFLOP/s", "copy in memory", "GB/s", "\nkernels ",
              "latency to a spinning thread", " µs", "disk, read", "\ndisk method "});
  CHECK(contains(table.err, "our matmul, 1 core, ETA "));
  if (const Finished full = call(kQuick + "--dir /proc"); !contains(full.err, "no files may be"))
    check_refused(full, "/proc has 0 B left, but a file of 4.00 MiB is made");
}

TEST_CASE("our matmul stays below the best sample of the multiply-adds", "[zerolab]") {
  const Finished finished = call(kQuick + "-q --json");
  REQUIRE((finished.code == 0 && finished.err.empty()));
  const Json json = Json::parse(finished.out);
  double peak = 0, product = 0;
  for (const Json& limit : json["limits"]) {
    if (limit["cores"] != 1) continue;
    if (limit["what"] == "multiply_add") peak = limit["max"];
    if (limit["what"] == "product") product = limit["median"];
  }
  if (peak == 0) SKIP("this CPU has no loop of multiply-adds");
  // If a compiler kept the multiply-adds in memory and not in registers, they would reach less than
  // half of the peak, and the matmul would be faster.
  CHECK((product > 0 && product < peak));
}

TEST_CASE("bench machine --save writes this machine, with plausible rates, and plan takes it",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "here.json", "{}");
  const Finished saved = call(save(file) + " --force --json --dir " + folder.path());
  CAPTURE(saved.err);
  REQUIRE((saved.code == 0 && saved.err.empty()));
  CHECK(Json::parse(saved.out)["machine"] == Json::parse(read_file(file)));

  const Machine m = zl::find_machine(file);
  CHECK(m.name == "here");
  CHECK(m.rank.device == zl::DeviceKind::cpu);
  CHECK(m.link.kind == zl::NodeLink::Kind::memory);
  CHECK(m.network.ports == 0);
  CHECK((m.host.disk_read > 0 && m.host.disk_write > 0 && m.host.disk_bytes > 0));
  CHECK(contains(m.sources.back(), folder.path() + ", "));
  // Per second, and not in millions or billions of them, on anything from a small board on.
  CHECK(m.rank.memory_bytes > 1e8);
  CHECK((m.rank.memory_bandwidth > 1e8 && m.rank.memory_bandwidth < 1e12));
  CHECK((m.rank.f32_flops > 1e8 && m.rank.f32_flops < 1e13));
  CHECK(m.rank.half_flops < 1e13);
  CHECK((m.rank.launch >= 0 && m.rank.launch < 1e-3));
  std::set<int> ranks;
  for (const zl::CollectiveRow& row : m.collectives) ranks.insert(row.ranks);
  CHECK(m.collectives.size() == 3 * ranks.size());
  CHECK((m.ranks_per_node == 1 || (ranks.contains(2) && ranks.contains(m.ranks_per_node))));

  const std::string plan = "plan --model tiny --machine " + file + " --ranks ";
  const Json stages = Json::parse(document(plan + "1"))["stages"];
  REQUIRE(stages.size() == 4);
  for (const Json& stage : stages) CHECK((stage["seconds_per_step"] > 0.0 && stage["mfu"] < 1.0));
  check_refused(call(plan + std::to_string(m.ranks_per_node + 1)),
                "the machine here is one node of ");
}

TEST_CASE("the kernels of bench machine --save have the models' shapes", "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = folder / "here.json";
  REQUIRE(call(save(file)).code == 0);
  const Machine m = zl::find_machine(file);
  std::set<std::string> kernels;
  std::set<int> heads, rows;
  for (const KernelTimes& times : m.rank.kernels) {
    CAPTURE(times.kernel);
    kernels.insert(times.kernel);
    if (times.kernel == "attention") heads.insert(times.shape);
    if (times.kernel == "matmul") rows.insert(times.shape);
    CHECK((times.ranks == 1 || times.ranks == m.ranks_per_node));
    for (const KernelTimes::Point& p : times.points)
      CHECK((p.operations / p.seconds < 1e13 && p.bytes / p.seconds < 1e13));
  }
  for (const std::string& kernel :
       words("matmul attention attention_backward gelu adamw accumulate "
             "copy sums_of_squares"))
    CHECK(kernels.contains(kernel));
  CHECK(heads == std::set{16});  // of both models of --quick, which have 4 · 32 and 4 · 64 tokens
  CHECK(rows == std::set{128, 256});
  // A larger matmul takes longer.
  const auto matmul = [&](double operations) {
    return zl::kernel_seconds(
        m.rank, {.kernel = "matmul", .operations = operations, .bytes = 1, .rows = 128});
  };
  CHECK(matmul(1e8) > matmul(1e6));
}

}  // namespace cli
