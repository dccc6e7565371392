// Frozen behaviour: what the programs gave when tests/golden/runs.json was recorded, they give now.
//
// Losses, gradient norms and weights are compared in all bits; memory and traffic in all bytes.
// So are exit codes and the paths of JSON documents. What the programs say in sentences is not.
// A change that is meant to change one of these records all of them again:
//
//   ZEROLAB_RECORD_GOLDEN=1 ./zl test golden
//
// and `git diff tests/golden/runs.json` then shows what it changed, and nothing else should be
// there. A new run is a record with an empty "expect", which is then recorded in the same way.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/golden/run.h"

namespace golden {
namespace {

const std::string kRun =
    " --model tiny --steps 2 --device cpu --set train_micro_batch_size_per_gpu=2";

// The names of what differs, up to the colon.
std::set<std::string> changed(const Quantities& a, const Quantities& b) {
  std::set<std::string> names;
  for (const std::string& line : differences(a, b)) names.insert(line.substr(0, line.find(':')));
  return names;
}

Quantities ran(const std::string& program, const std::string& command) {
  return measure({.name = "", .program = program, .command = command});
}

}  // namespace

TEST_CASE("every recorded run of a program gives what was recorded", "[golden]") {
  if (const std::string why = other_bits_expected(); !why.empty()) SKIP(why);
  check_or_record(programs(), measure);
}

TEST_CASE("records have names of their own, and all programs and stages are among them",
          "[golden]") {
  std::set<std::string> names, used;
  std::string commands;
  for (const Record& record : recorded()) {
    CAPTURE(record.name);
    CHECK(names.insert(record.name).second);
    CHECK((recording() || !record.expect.empty()));
    used.insert(record.program);
    commands += record.command + " ";
  }
  CHECK(names.size() >= 80);
  for (const std::string& program : programs()) CHECK(used.count(program) == 1);
  for (const char* word : {"ddp", "zero1", "zero2", "zero3", "compare", "plan", "launch"})
    CHECK(commands.find(word) != std::string::npos);
}

TEST_CASE("another seed changes losses, norms and weights of train, and nothing else", "[golden]") {
  const std::string command = "train --stage zero2 --ranks 2 --sample 0" + kRun;
  for (const std::string program : {"zerolab", "on_emulator"}) {
    CAPTURE(program);
    std::string where = command;
    if (program == "on_emulator") where.replace(where.find("cpu"), 3, "cuda --backend threads");
    const Quantities seed_3 = ran(program, where + " --seed 3");
    CHECK(seed_3.at("exit code") == "0");
    CHECK(differences(seed_3, ran(program, where + " --seed 3")).empty());
    CHECK(changed(seed_3, ran(program, where + " --seed 4")) ==
          std::set<std::string>{"final_loss", "grad_norm", "loss", "metrics.jsonl",
                                "model.safetensors", "seed"});
  }
}

TEST_CASE("another seed changes losses, norms and weights of compare, and nothing else",
          "[golden]") {
  const std::string ranks = "launch -n 2 -- compare --stages ddp,zero3" + kRun;
  const Quantities seed_3 = ran("on_fake", ranks + " --seed 3");
  CHECK(seed_3.at("exit code") == "0");
  std::set<std::string> expected;
  for (const char* stage : {"ddp", "zero3"})
    for (const char* what : {" grad_norm", " loss", " weights_hash"})
      expected.insert(std::string(stage) + what);
  CHECK(changed(seed_3, ran("on_fake", ranks + " --seed 4")) == expected);
}

TEST_CASE("a larger bucket changes the peaks of plan, and more ranks its traffic", "[golden]") {
  const std::string command = "plan --model tiny --stages zero2 --set ";
  const std::string bucket = "zero_optimization.reduce_bucket_size=";
  const Quantities units = ran("zerolab", command + bucket + "1 --ranks 3");
  const Quantities whole = ran("zerolab", command + bucket + "5e8 --ranks 3");
  CHECK(units.at("exit code") == "0");
  CHECK(changed(units, whole) == std::set<std::string>{"zero2 memory device gradient"});
  const Quantities five = ran("zerolab", command + bucket + "1 --ranks 5");
  const std::string traffic = "zero2 traffic reduce_scatter gradient";
  CHECK(units.at(traffic) != five.at(traffic));
}

TEST_CASE("a refusal has its exit code, and says nothing on stdout", "[golden]") {
  const Quantities refused = ran("zerolab", "plan --no-such-flag");
  CHECK(refused == Quantities{{"exit code", "2"}});
  CHECK(ran("zerolab", "plan --model tiny").at("exit code") == "0");
}

TEST_CASE("the paths of two commands' documents differ", "[golden]") {
  Record plan{.name = "", .program = "zerolab", .command = "plan --model tiny", .keys = true};
  const Quantities paths = measure(plan);
  CHECK(paths.at("stages[].memory[].predicted_rest_bytes") == "number");
  CHECK(paths.count("stages[].memory[].rest_bytes") == 0);
  plan.command = "compare --ranks 2" + kRun;
  CHECK(measure(plan).at("stages[].memory[].rest_bytes") == "number");
}

TEST_CASE("differences name what changed, what is gone and what is new", "[golden]") {
  const Quantities recorded{{"loss", "1.5"}, {"memory", "16 x3"}};
  CHECK(differences(recorded, recorded).empty());
  CHECK(differences(recorded, {{"loss", "1.25"}, {"traffic", "12"}}) ==
        std::vector<std::string>{"loss: recorded '1.5', now '1.25'",
                                 "memory: recorded '16 x3', now absent",
                                 "traffic: not recorded, now '12'"});
}

TEST_CASE("a file of records reads back as what was written", "[golden]") {
  std::vector<Record> records{{"a", "zerolab", "train --steps 2", false, {{"loss", "1 \"x\""}}},
                              {"b", "on_fake", "plan", true, {}}};
  for (int i = 0; i < 40; ++i) records[0].expect["number " + std::to_string(i)] = "16 x3";
  const std::string text = to_text(records);
  CHECK(to_text(from_text(text)) == text);
  CHECK(from_text(text).at(0).expect == records[0].expect);
  CHECK(from_text(text).at(1).keys);
  records[0].expect["loss"] = "2";
  CHECK(to_text(records) != text);
}

TEST_CASE("hashes and exact numbers differ in the last bit", "[golden]") {
  CHECK(hash("a") == "af63dc4c8601ec8c");  // FNV-1a's own test vector
  CHECK(hash("a") != hash("b"));
  CHECK(hash("ab") != hash("ba"));
  CHECK(exactly(1.0) == "0x1p+0");
  CHECK(exactly(1.0) != exactly(std::nextafter(1.0, 2.0)));
  CHECK(of_ranks({16, 16, 16}) == "16 x3");
  CHECK(of_ranks({16, 16, 12}) == "16 16 12");
}

}  // namespace golden
