// bench machine --save: the file is a machine that plan reads, with plausible units. How fast this
// machine is, is not tested.

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "stages/predict/clock/kernel_time.h"
#include "tensor/error.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;
using namespace zl;

std::vector<std::string> save(const std::string& file, std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {"bench", "machine", "--save", file, "--device", "cpu", "--quick",
                               "--array", "1MiB", "--samples", "3", "-q"});
  return flags;
}

}  // namespace

TEST_CASE("bench machine --save writes this machine, with plausible rates per second",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = folder / "here.json";
  const Finished saved = zerolab(save(file, {"--json"}));
  CAPTURE(saved.err);
  REQUIRE(saved.code == 0);
  CHECK(saved.err.empty());
  CHECK(Json::parse(saved.out)["machine"] == Json::parse(read_file(file)));

  const Machine m = find_machine(file);
  CHECK(m.name == "here");
  CHECK(m.rank.device == DeviceKind::cpu);
  CHECK(m.link.kind == NodeLink::Kind::memory);
  CHECK(m.network.ports == 0);
  // Per second, and not in millions or billions of them, on anything from a small board on.
  CHECK(m.rank.memory_bytes > 1e8);
  CHECK(m.rank.memory_bandwidth > 1e8);
  CHECK(m.rank.memory_bandwidth < 1e12);
  CHECK(m.rank.f32_flops > 1e8);
  CHECK(m.rank.f32_flops < 1e13);
  CHECK(m.rank.half_flops < 1e13);
  CHECK(m.rank.launch >= 0);
  CHECK(m.rank.launch < 1e-3);
  std::set<int> ranks;
  for (const CollectiveRow& row : m.collectives) ranks.insert(row.ranks);
  CHECK(m.collectives.size() == 3 * ranks.size());
  CHECK((m.ranks_per_node == 1 || ranks.contains(2)));
  CHECK((m.ranks_per_node == 1 || ranks.contains(m.ranks_per_node)));
}

TEST_CASE("the kernels of bench machine --save have the models' shapes, and plan takes them",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = folder / "here.json";
  REQUIRE(zerolab(save(file)).code == 0);
  const Machine m = find_machine(file);
  std::set<std::string> kernels;
  std::set<int> heads, rows;
  for (const KernelTimes& times : m.rank.kernels) {
    CAPTURE(times.kernel);
    kernels.insert(times.kernel);
    if (times.kernel == "attention") heads.insert(times.shape);
    if (times.kernel == "matmul") rows.insert(times.shape);
    CHECK((times.ranks == 1 || times.ranks == m.ranks_per_node));
    CHECK(times.points.size() <= 12);
    for (const KernelTimes::Point& p : times.points) {
      CHECK(p.operations / p.seconds < 1e13);
      CHECK(p.bytes / p.seconds < 1e13);
    }
  }
  for (const char* kernel : {"matmul", "attention", "attention_backward", "gelu", "adamw",
                             "accumulate", "copy", "sums_of_squares"})
    CHECK(kernels.contains(kernel));
  CHECK(heads == std::set{16});  // of both models of --quick, which have 4 · 32 and 4 · 64 tokens
  CHECK(rows == std::set{128, 256});
  // A larger matmul takes longer.
  const auto matmul = [&](double operations) {
    return kernel_seconds(m.rank,
                          {.kernel = "matmul", .operations = operations, .bytes = 1, .rows = 128});
  };
  CHECK(matmul(1e8) > matmul(1e6));

  const Finished plan =
      zerolab({"plan", "--model", "tiny", "--ranks", "1", "--machine", file, "--json"});
  REQUIRE(plan.code == 0);
  const Json json = Json::parse(plan.out);
  REQUIRE(json["stages"].size() == 4);
  for (const Json& stage : json["stages"]) {
    CHECK(stage["seconds_per_step"] > 0.0);
    CHECK(stage["mfu"] < 1.0);
  }
  const std::string more = std::to_string(m.ranks_per_node + 1);
  const Finished too_many =
      zerolab({"plan", "--model", "tiny", "--ranks", more, "--machine", file});
  CHECK(too_many.code == 2);
  CHECK(contains(too_many.err, "the machine here is one node of "));
}

TEST_CASE("a file that --save cannot write, or that plan cannot read, gets one sentence",
          "[zerolab]") {
  const ScratchFolder folder;
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& part) {
    const Finished finished = zerolab(arguments);
    CAPTURE(arguments, finished.err);
    CHECK(finished.code != 0);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, part));
  };
  const std::string file = write_file(folder / "old.json", "{}");
  refused(save(file), "old.json");
  CHECK(read_file(file) == "{}");
  refused(save(folder.path()), "is a folder");
  refused(save(folder / "none/m.json"), "none");
  refused({"bench", "machine", "--device", "cpu"}, "--device and --force are for --save FILE");
  refused({"plan", "--model", "tiny", "--machine", file}, "old.json: schema is missing");

  REQUIRE(zerolab(save(file, {"--force", "--cores", "1"})).code == 0);
  std::string text = read_file(file);
  const std::string key = "\"launch_seconds\"";
  const size_t at = text.find(key);
  REQUIRE(at != std::string::npos);
  const std::string broken =
      write_file(folder / "broken.json", text.replace(at, key.size(), "\"launch\""));
  const Finished finished = zerolab({"plan", "--model", "tiny", "--machine", broken});
  CHECK(finished.code == 2);
  CHECK(contains(finished.err, "broken.json: rank.launch_seconds is missing"));
  CHECK(lines(finished.err).size() == 1);
}

}  // namespace cli
