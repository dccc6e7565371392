// plan --machine: which stage it says to take, what fits, and how large groups are.

#include <signal.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "stages/predict/clock/machine.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kPlan = "plan --precision bf16 ";

Finished plan(const std::string& flags) { return call(kPlan + flags); }
Json plan_document(const std::string& flags) { return Json::parse(document(kPlan + flags)); }

}  // namespace

TEST_CASE("plan --machine takes the fastest stage that fits, not the first", "[zerolab]") {
  const std::string flags = "--model gpt2-xl --ranks 8 --machine a100-80gb --overlap on";
  const Json stages = plan_document(flags)["stages"];
  const auto& fastest = *std::ranges::min_element(
      stages, {}, [](const Json& s) { return s["seconds_per_step"].get<double>(); });
  REQUIRE(stages[0]["fits"] == true);
  REQUIRE(fastest["stage"] != stages[0]["stage"]);
  const std::string text = plan(flags).out;
  CHECK(contains(text, "\nTake " + fastest["stage"].get<std::string>() +
                           ": it is the fastest that fits, with "));
  CHECK_FALSE(contains(text, "the first that fits"));
  // Without a machine there are no times.
  const std::string none = plan("--model gpt2-xl --ranks 8 --device-memory 80GB").out;
  CHECK(contains(none, "the first that fits"));
  CHECK_FALSE(contains(none, "the fastest that fits"));
}

TEST_CASE("plan --machine counts host memory and disk of what is offloaded", "[zerolab]") {
  const ScratchFolder folder;
  zl::Machine m = zl::find_machine("a100-80gb");
  const auto finished = [&](const std::string& where) {
    const std::string file = write_file(folder / "m.json", zl::machine_json(m));
    return plan("--model gpt2 --ranks 8 --stages zero1 --machine " + file + " --offload " + where +
                (where == "nvme" ? " --nvme-path " + folder.path() : ""));
  };
  CHECK(finished("cpu").code == 0);
  m.host.memory_bytes = 1e9;  // of 12 bytes of 124 million parameters
  const Finished small = finished("cpu");
  CHECK(small.code == 3);
  check_says(small.out, {"No stage fits.", "zero1: ", "does not fit: too little host memory; "});
  m.host.memory_bytes = 2e12, m.host.disk_bytes = 1e9;
  const Finished disk = finished("nvme");
  CHECK(disk.code == 3);
  CHECK(contains(disk.out, "does not fit: too little disk; "));
}

TEST_CASE("plan --force replaces the files of --csv and --trace", "[zerolab]") {
  const ScratchFolder folder;
  const std::string csv = write_file(folder / "a.csv", "mine"),
                    trace = write_file(folder / "a.json", "mine");
  CHECK(plan("--machine l4 --sweep ranks=2 --force --csv " + csv + " --trace " + trace).code == 0);
  CHECK(read_file(csv).starts_with("ranks,stage,seconds_per_step,"));
  CHECK(Json::accept(read_file(trace)));
  CHECK(plan("--machine l4 --as cuda --ranks 8 --ranks-per-node 4 --sweep ranks=4,8 --stragglers "
             "0.1 --stragglers-seed 7")
            .code == 0);
}

TEST_CASE("plan --machines lists the same machines as text and as JSON", "[zerolab]") {
  const Json list = Json::parse(document("plan --machines"));
  const std::string text = call("plan --machines").out;
  REQUIRE(list["machines"].size() == zl::shipped_machines().size());
  for (const Json& m : list["machines"])
    CHECK(contains(text, "  " + m["name"].get<std::string>() + " "));
}

TEST_CASE("what a verdict offers brings at least 1 %, and no other part brings more", "[zerolab]") {
  // Kernels and launches of this step take about as long: faster kernels alone bring nothing.
  const std::string flags =
      "--model small --set train_micro_batch_size_per_gpu=8 --machine a100-80gb --ranks 1";
  const Json small = plan_document(flags);
  for (const Json& stage : small["stages"]) {
    CHECK(stage["limit"]["part"] == "launches");
    CHECK(stage["limit"]["seconds_per_step_at_twice_the_speed"].get<double>() <
          0.99 * stage["seconds_per_step"].get<double>());
  }
  const std::string text = plan(flags).out;
  CHECK(contains(text, "; the host's launches limit it ("));
  CHECK_FALSE(contains(text, "kernels limit it"));
  // 20 layers of 354 million parameters: their optimizer state goes over PCIe twice.
  for (const auto& [machine, part] : {std::pair{"a100-80gb --ranks 8", "kernels"},
                                      {"h100-sxm --ranks 4096", "links"},
                                      {"b200 --ranks 1 --offload cpu", "copies"}})
    CHECK(plan_document(std::string("--model gpt2-medium --stages zero3 --machine ") +
                        machine)["stages"][0]["limit"]["part"] == part);
}

TEST_CASE("plan --advise tries hsdp by itself, and with --stages only those", "[zerolab]") {
  const auto stages = [](const std::string& more) {
    const Json advice =
        plan_document("--model gpt2 --ranks 1024 --machine h100-sxm --advise " + more)["advice"];
    Words all = {advice["fastest"]["stage"]};
    for (const Json& other : advice["others"]) all.push_back(other["stage"]);
    return all;
  };
  CHECK(std::ranges::count(stages(""), "hsdp") > 0);
  CHECK(std::ranges::count(stages("--stages zero1,zero2"), "hsdp") == 0);
  for (const std::string& stage : stages("--stages zero2")) CHECK(stage == "zero2");
  CHECK_FALSE(stages("--stages all").empty());    // some of them refuse offload
  CHECK_FALSE(stages("--reproducible").empty());  // hsdp refuses it
}

TEST_CASE("the reason for which settings lose adds up", "[zerolab]") {
  const Json advice =
      plan_document("--model gpt2-xl --ranks 16 --machine a100-80gb --advise")["advice"];
  REQUIRE(advice["others"].size() == 3);
  for (const Json& other : advice["others"]) {
    const std::string reason = other["reason"];
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
  const auto advice = [](int ranks) {
    return plan(
               "--model gpt2-xl --set train_micro_batch_size_per_gpu=1 --machine t4 --stages "
               "zero3 --device-memory 1.5GiB --advise --ranks " +
               std::to_string(ranks))
        .out;
  };
  const std::string few = advice(2);
  const size_t at = few.find("It fits on ");
  REQUIRE(at != std::string::npos);
  const int ranks = std::stoi(few.substr(at + 11));
  CHECK(contains(advice(ranks), "the fastest that fits 1.50 GiB: "));
  CHECK_FALSE(contains(advice(ranks / 2), "the fastest that fits"));
}

TEST_CASE("the numbers of a sweep are those of single plans", "[zerolab]") {
  const ScratchFolder folder;
  const std::string flags = "--model gpt2 --machine v100-dgx2 --overlap on --stages zero1,zero3 ",
                    csv = folder / "s.csv";
  const Json rows = plan_document(flags + "--sweep ranks=2,32 --csv " + csv)["sweep"];
  const auto table = lines(read_file(csv));
  REQUIRE((rows.size() == 4 && table.size() == 5));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    const std::string ranks = std::to_string(row["ranks"].get<int>());
    const Json one = plan_document(flags + "--ranks " + ranks), &stage = one["stages"][i % 2];
    for (const std::string& key :
         words("stage fits seconds_per_step compute_seconds communication_seconds "
               "exposed_communication_seconds tokens_per_second_per_rank mfu"))
      CHECK(row[key] == stage[key]);
    CHECK(row["peak_bytes"] == stage["predicted_peak_total_bytes"][0]);
    CHECK(row["expected_error"] == one["expected_error"]["share"]);
    const std::string begin = ranks + "," + row["stage"].get<std::string>() + ",";
    REQUIRE(table[i + 1].starts_with(begin));
    CHECK(std::stod(table[i + 1].substr(begin.size())) == row["seconds_per_step"].get<double>());
  }
}

// From 2,000 layers on. Ctrl-C during the last item: the test does not wait for it.
TEST_CASE("plan of very many layers tells its progress, and Ctrl-C ends it soon", "[zerolab]") {
  const std::string last = "2/2 a step of zero3 on l4, ETA ",
                    stages = kPlan + "--stages ddp,zero3 --ranks 1 --machine l4 --n-layer ";
  const Finished many = stopped_at(last, SIGINT, stages + "2000");
  check_says(many.err, {"1/2 memory and traffic of ddp\n", last});
  CHECK(many.code == 130);
  CHECK(call(kPlan + "--stages zero1 --n-layer 2000 --quiet").err.empty());
  CHECK(call(stages + "100").err.empty());
  const Finished interrupted = stopped_at("1/4 ", SIGINT, kPlan + "--n-layer 30000");
  CHECK(interrupted.code == 130);
  CHECK(interrupted.seconds < 10);
  CHECK(interrupted.err.ends_with("zerolab: interrupted\n"));
}

}  // namespace cli
