// bench machine --save writes a machine that plan reads, with plausible units. How fast this
// machine is, is not tested.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "stages/predict/clock/kernel_time.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

using zl::Machine, zl::KernelTimes;

std::string save(const std::string& file) {
  return "bench machine --quick --device cpu -q --save " + file;
}

}  // namespace

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

  const Finished text = call("bench machine --quick --device cpu --force --save " + file);
  check_says(text.out, {"a rank computes", "GB/s", "sources", "plan --model small --ranks "});
  CHECK(contains(text.err, "/"));  // progress
  if (const Finished full = call(save(file) + " --force --dir /proc");
      !contains(full.err, "no files may be"))
    check_refused(full, "/proc has 0 B left, but a file of 4.00 MiB is made");
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
