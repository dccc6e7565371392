// plan --machine: which stage it says to take, what fits, and how large groups are.

#include <signal.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "stages/predict/clock/machine.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

std::vector<std::string> plan(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"plan", "--precision", "bf16"});
  return flags;
}

Json document(std::vector<std::string> flags) {
  flags.push_back("--json");
  return Json::parse(zerolab(plan(flags)).out);
}

}  // namespace

TEST_CASE("plan --machine takes the fastest stage that fits, not the first", "[zerolab]") {
  const std::vector<std::string> flags = {"--model",   "gpt2-xl",   "--ranks",   "8",
                                          "--machine", "a100-80gb", "--overlap", "on"};
  const Json stages = document(flags)["stages"];
  const auto& fastest = *std::ranges::min_element(
      stages, {}, [](const Json& s) { return s["seconds_per_step"].get<double>(); });
  REQUIRE(stages[0]["fits"] == true);
  REQUIRE(fastest["stage"] != stages[0]["stage"]);
  const std::string text = zerolab(plan(flags)).out;
  CHECK(contains(text, "\nTake " + fastest["stage"].get<std::string>() +
                           ": it is the fastest that fits, with "));
  CHECK_FALSE(contains(text, "the first that fits"));
  // Without a machine there are no times.
  const Finished none =
      zerolab(plan({"--model", "gpt2-xl", "--ranks", "8", "--device-memory", "80GB"}));
  CHECK(contains(none.out, "the first that fits"));
  CHECK_FALSE(contains(none.out, "the fastest that fits"));
}

TEST_CASE("plan --machine counts host memory and disk of what is offloaded", "[zerolab]") {
  const ScratchFolder folder;
  zl::Machine m = zl::find_machine("a100-80gb");
  const auto finished = [&](const char* where) {
    const std::string file = write_file(folder / "m.json", zl::machine_json(m));
    std::vector<std::string> flags = {"--model", "gpt2",      "--ranks", "8",         "--stages",
                                      "zero1",   "--offload", where,     "--machine", file};
    if (where == std::string("nvme")) flags.insert(flags.end(), {"--nvme-path", folder.path()});
    const Finished plan_of = zerolab(plan(flags));
    std::filesystem::remove(file);
    return plan_of;
  };
  CHECK(finished("cpu").code == 0);
  CHECK(finished("nvme").code == 0);
  m.host.memory_bytes = 1e9;  // of 12 bytes of 124 million parameters
  const Finished small = finished("cpu");
  CHECK(small.code == 3);
  CHECK(contains(small.out, "No stage fits."));
  CHECK(contains(small.out, "zero1: "));
  CHECK(contains(small.out, "does not fit: too little host memory; "));
  CHECK(finished("none").code == 0);
  m.host.memory_bytes = 2e12, m.host.disk_bytes = 1e9;
  CHECK(finished("cpu").code == 0);
  const Finished disk = finished("nvme");
  CHECK(disk.code == 3);
  CHECK(contains(disk.out, "does not fit: too little disk; "));
}

TEST_CASE("plan --machine takes hsdp whose replicas have several nodes", "[zerolab]") {
  const auto hsdp = [](const std::string& replicas) {
    return zerolab(plan({"--model", "gpt2", "--ranks", "64", "--machine", "a100-80gb", "--stages",
                         "hsdp", "--replicas", replicas, "--sweep", "ranks=32,64"}));
  };
  for (const char* replicas : {"2", "4", "8", "16"}) {
    CAPTURE(replicas);
    CHECK(hsdp(replicas).code == 0);
  }
  CHECK(hsdp("4").out != hsdp("8").out);
  CHECK(contains(hsdp("64").out, "\n  32"));
  CHECK(contains(hsdp("3").err, "hsdp"));
  CHECK(hsdp("3").code == 2);
}

TEST_CASE("plan's flags of the clock are refused with one sentence if they cannot be right",
          "[zerolab]") {
  const auto refused = [](std::vector<std::string> flags, const std::string& sentence) {
    const Finished finished = zerolab(plan(flags));
    CAPTURE(finished.err);
    CHECK(finished.code == 2);
    CHECK(finished.out.empty());
    CHECK(finished.err == "zerolab: " + sentence + "\nTry 'zerolab plan --help'.\n");
  };
  refused({"--machine", ""}, "--machine: the name is empty");
  refused({"--machine", "l4", "--sweep", "ranks=8,8"}, "--sweep: 'ranks=8,8' has 8 twice");
  refused({"--stragglers-seed", "7"},
          "--stragglers-seed needs a machine; give --machine NAME (--machines lists them)");
  refused({"--machine", "l4", "--stragglers-seed", "7"},
          "--stragglers-seed is for --stragglers, which is not given");
  refused({"--machine", "l4", "--force"},
          "--force replaces the files of --csv and --trace, and neither is given");
  refused({"--machine", "l4", "--sweep", "ranks=2", "--csv", "x", "--trace", "./x"},
          "--csv and --trace name the same file");
  refused({"--machine", "l4", "--as", "cpu"},
          "the ranks of l4 are GPUs, which contradicts --as; leave it out");
  refused({"--machine", "l4", "--backend", "mpi"},
          "the ranks of l4 are GPUs, which contradicts --backend; leave it out");
  refused({"--machine", "l4", "--ranks", "8", "--ranks-per-node", "3"},
          "--ranks-per-node 3 does not divide 8 ranks into full nodes");
  refused({"--machine", "l4", "--ranks-per-node", "4", "--sweep", "ranks=8,6"},
          "--ranks-per-node 4 does not divide 6 ranks into full nodes");
  CHECK(zerolab(plan({"--machine", "l4", "--as", "cuda", "--ranks", "8", "--ranks-per-node", "4",
                      "--sweep", "ranks=4,8", "--stragglers", "0.1", "--stragglers-seed", "7"}))
            .code == 0);
}

TEST_CASE("plan --force replaces the files of --csv and --trace, and nothing else does",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string csv = write_file(folder / "a.csv", "mine"),
                    trace = write_file(folder / "a.json", "mine");
  std::vector<std::string> flags = {"--machine", "l4", "--sweep", "ranks=2",
                                    "--csv",     csv,  "--trace", trace};
  const Finished kept = zerolab(plan(flags));
  CHECK(kept.code == 2);
  CHECK(contains(kept.err, "exists; --force replaces it"));
  CHECK(read_file(csv) == "mine");
  flags.push_back("--force");
  CHECK(zerolab(plan(flags)).code == 0);
  CHECK(read_file(csv).starts_with("ranks,stage,seconds_per_step,"));
  CHECK(Json::accept(read_file(trace)));
}

TEST_CASE("plan --machines lists the same machines as text and as JSON", "[zerolab]") {
  const Json list = Json::parse(zerolab({"plan", "--machines", "--json"}).out);
  const std::string text = zerolab({"plan", "--machines"}).out;
  REQUIRE(list["machines"].size() == zl::shipped_machines().size());
  for (const Json& m : list["machines"])
    CHECK(contains(text, "  " + m["name"].get<std::string>() + " "));
}

TEST_CASE("what a verdict offers brings at least 1 %, and no other part brings more", "[zerolab]") {
  // Kernels and launches of this step take about as long: faster kernels alone bring nothing.
  const std::vector<std::string> flags = {
      "--model",   "small",     "--set",   "train_micro_batch_size_per_gpu=8",
      "--machine", "a100-80gb", "--ranks", "1"};
  for (const Json& stage : document(flags)["stages"]) {
    CHECK(stage["limit"]["part"] == "launches");
    CHECK(stage["limit"]["seconds_per_step_at_twice_the_speed"].get<double>() <
          0.99 * stage["seconds_per_step"].get<double>());
  }
  const std::string text = zerolab(plan(flags)).out;
  CHECK(contains(text, "; the host's launches limit it ("));
  CHECK_FALSE(contains(text, "kernels limit it"));
  const auto part = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--model", "gpt2-medium", "--stages", "zero3"});
    return document(more)["stages"][0]["limit"]["part"];
  };
  CHECK(part({"--machine", "a100-80gb", "--ranks", "8"}) == "kernels");
  CHECK(part({"--machine", "h100-sxm", "--ranks", "4096"}) == "links");
  // 20 layers of 354 million parameters: their optimizer state goes over PCIe twice.
  CHECK(part({"--machine", "b200", "--ranks", "1", "--offload", "cpu"}) == "copies");
}

TEST_CASE("plan --advise tries hsdp by itself, and with --stages only those", "[zerolab]") {
  const auto stages = [](std::vector<std::string> more) {
    more.insert(more.end(),
                {"--model", "gpt2-xl", "--ranks", "1024", "--machine", "h100-sxm", "--advise"});
    const Json advice = document(more)["advice"];
    std::vector<std::string> all = {advice["fastest"]["stage"]};
    for (const Json& other : advice["others"]) all.push_back(other["stage"]);
    return all;
  };
  const auto has = [](const std::vector<std::string>& all, const char* stage) {
    return std::ranges::find(all, stage) != all.end();
  };
  CHECK(has(stages({}), "hsdp") != has(stages({"--stages", "zero1,zero2"}), "hsdp"));
  for (const std::string& stage : stages({"--stages", "zero2"})) CHECK(stage == "zero2");
  CHECK_FALSE(stages({"--stages", "all"}).empty());  // some of them refuse offload
  CHECK_FALSE(stages({"--reproducible"}).empty());   // hsdp refuses it
}

TEST_CASE("the reason for which settings lose adds up", "[zerolab]") {
  const Json advice = document(
      {"--model", "gpt2-xl", "--ranks", "16", "--machine", "a100-80gb", "--advise"})["advice"];
  REQUIRE(advice["others"].size() == 3);
  for (const Json& other : advice["others"]) {
    std::string reason = other["reason"];
    CAPTURE(reason);
    REQUIRE(other["fits"] == true);
    const double longer = std::stod(reason);
    CHECK(longer == Catch::Approx(1e3 * (other["seconds_per_step"].get<double>() -
                                         advice["fastest"]["seconds_per_step"].get<double>()))
                        .epsilon(0.01));
    double sum = 0;
    for (size_t at = reason.find(": "); at != std::string::npos; at = reason.find(", ", at + 1)) {
      const std::string part = reason.substr(at + 2);
      sum += std::stod(part) * (contains(part.substr(0, part.find(',')), " ms less ") ? -1 : 1);
    }
    CHECK(sum == Catch::Approx(longer).epsilon(0.1));
  }
}

TEST_CASE("if nothing fits, plan --advise says from how many ranks on it does", "[zerolab]") {
  const auto advice = [](std::vector<std::string> more) {
    more.insert(more.end(),
                {"--model", "gpt2-xl", "--set", "train_micro_batch_size_per_gpu=1", "--machine",
                 "t4", "--stages", "zero3", "--device-memory", "1.5GiB", "--advise"});
    return zerolab(plan(more)).out;
  };
  const std::string few = advice({"--ranks", "2"});
  const size_t at = few.find("It fits on ");
  REQUIRE(at != std::string::npos);
  const int ranks = std::stoi(few.substr(at + 11));
  CHECK(contains(advice({"--ranks", std::to_string(ranks)}), "the fastest that fits 1.50 GiB: "));
  CHECK_FALSE(contains(advice({"--ranks", std::to_string(ranks / 2)}), "the fastest that fits"));
}

TEST_CASE("the numbers of a sweep are those of single plans", "[zerolab]") {
  const ScratchFolder folder;
  const std::vector<std::string> flags = {"--model",   "gpt2", "--machine", "v100-dgx2",
                                          "--overlap", "on",   "--stages",  "zero1,zero3"};
  std::vector<std::string> sweep = flags;
  sweep.insert(sweep.end(), {"--sweep", "ranks=2,32", "--csv", folder / "s.csv"});
  const Json rows = document(sweep)["sweep"];
  REQUIRE(rows.size() == 4);
  const std::vector<std::string> table = lines(read_file(folder / "s.csv"));
  REQUIRE(table.size() == 5);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    std::vector<std::string> single = flags;
    single.insert(single.end(), {"--ranks", std::to_string(row["ranks"].get<int>())});
    const Json one = document(single);
    const Json& stage = one["stages"][i % 2];
    for (const char* key :
         {"stage", "fits", "seconds_per_step", "compute_seconds", "communication_seconds",
          "exposed_communication_seconds", "tokens_per_second_per_rank", "mfu"})
      CHECK(row[key] == stage[key]);
    CHECK(row["peak_bytes"] == stage["predicted_peak_total_bytes"][0]);
    CHECK(row["expected_error"] == one["expected_error"]["share"]);
    const std::string begin =
        std::to_string(row["ranks"].get<int>()) + "," + row["stage"].get<std::string>() + ",";
    REQUIRE(table[i + 1].starts_with(begin));
    CHECK(std::stod(table[i + 1].substr(begin.size())) == row["seconds_per_step"].get<double>());
  }
}

TEST_CASE("plan of very many layers tells its progress, and Ctrl-C ends it soon", "[zerolab]") {
  const auto layers = [](const char* n, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--n-layer", n, "--stages", "zero1,zero3", "--machine", "l4"});
    return zerolab(plan(more));
  };
  const Finished many = layers("2000");
  CHECK(contains(many.err, "1/2 memory and traffic of zero1\n"));
  CHECK(contains(many.err, "2/2 a step of zero3 on l4, ETA "));
  CHECK(layers("2000", {"--quiet"}).err.empty());
  CHECK(layers("100").err.empty());

  Launch launch{.arguments = plan({"--n-layer", "100000"}), .timeout = 60};
  launch.watch = [sent = false](pid_t process, const std::string& err) mutable {
    if (std::exchange(sent, sent || contains(err, "1/4 "))) return;
    if (sent) kill(process, SIGINT);
  };
  const Finished interrupted = run(launch);
  CHECK(interrupted.code == 130);
  CHECK(interrupted.seconds < 10);
  CHECK(interrupted.err.ends_with("zerolab: interrupted\n"));
}

}  // namespace cli
