// Frozen behaviour: what the programs gave when tests/golden/runs.txt was recorded, they give now.
//
// Losses, gradient norms and weights are compared in all bits; memory and traffic in all bytes.
// So are exit codes and the paths of JSON documents. What the programs say in sentences is not.
// A change that is meant to change one of these records all of them again:
//
//   ZEROLAB_RECORD_GOLDEN=1 ./zl test golden
//
// and `git diff tests/golden/runs.txt` then shows which runs it changed, and no other should be
// there. A new run is two lines, the second "  NAME | ", which is recorded in the same way.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/golden/runs.h"
#include "tests/zerolab/process.h"

namespace golden {
namespace {

using Names = std::set<std::string>;

const std::string kRun = " --model tiny --steps 2 --set train_micro_batch_size_per_gpu=2";

Items items(const std::string& command, const std::string& name = "") {
  return measure({.name = name, .command = command, .gave = ""}).items;
}

// The names of what differs.
Names differing(const Items& a, const Items& b) {
  Names names;
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const auto& [name, value] : *from)
      if (const auto found = to->find(name); found == to->end() || found->second != value)
        names.insert(name);
  return names;
}

// The same without all before a dot, and without indices.
Names changed(const Items& a, const Items& b) {
  Names names;
  for (const std::string& name : differing(a, b))
    names.insert(std::regex_replace(name, std::regex(R"(\[\d+\]|.*\.)"), ""));
  return names;
}

}  // namespace

TEST_CASE("every frozen run of a program gives what was recorded", "[golden]") {
  check_or_record();
}

TEST_CASE("frozen runs have names of their own, and all programs and stages are among them",
          "[golden]") {
  Names names;
  std::string commands = " ";
  for (const Run& run : frozen()) {
    CAPTURE(run.name);
    CHECK(names.insert(run.name).second);
    CHECK((recording() || run.gave.size() >= 16));
    commands += run.command + " ";
  }
  CHECK(names.size() >= 60);
  for (const std::string word : {"zerolab", "on_fake", "on_emulator", "own_model", "ddp", "zero1",
                                 "zero2", "zero3", "compare", "plan", "launch"})
    CHECK(cli::contains(commands, " " + word + " "));
}

TEST_CASE("a run of which one item changed is found, and all its items are shown", "[golden]") {
  nlohmann::ordered_json document{{"loss", {2.5, 1.5}}, {"grad_norm", {1, 3}}, {"seconds", 1}};
  const Result before = result(document.dump());
  const Run run{.name = "a", .command = "zerolab", .gave = before.gave};
  document["seconds"] = 2;
  CHECK(difference(run, result(document.dump())) == "");
  document["loss"][0] = 2.25;
  const std::string found = difference(run, result(document.dump()));
  CHECK(cli::contains(found, "recorded: " + before.gave + "\nnow: "));
  CHECK(cli::contains(found,
                      ", loss 1.5, norm 3\nall that it gives now:\ngrad_norm[0] = 1\n"
                      "grad_norm[1] = 3\nloss[0] = 2.25\nloss[1] = 1.5\n"));
  CHECK(cli::contains(found, "ZEROLAB_SHOW_GOLDEN='a' ./zl test '[golden]'"));
  document["loss"][0] = 2.5;
  document["loss"][1] = 1.5000000000000002;  // the next number after 1.5
  CHECK(difference(run, result(document.dump())) != "");
  CHECK(hash("a") == "af63dc4c8601ec8c");  // FNV-1a's own test vector
}

TEST_CASE("another seed changes losses, norms and weights, and nothing else", "[golden]") {
  const std::string train = " train --stage zero2 --ranks 2 --sample 0" + kRun;
  const Names of_train{"final_loss", "grad_norm", "loss", "safetensors", "seed"};
  const std::map<std::string, Names> runs = {
      {"zerolab" + train + " --device cpu", of_train},
      {"on_emulator" + train + " --device cuda --backend threads", of_train},
      {"on_fake launch -n 2 -- compare --stages ddp,zero3 --device cpu" + kRun,
       {"grad_norm", "loss", "weights_hash"}}};
  for (const auto& [command, names] : runs) {
    CAPTURE(command);
    const Items seed_3 = items(command + " --seed 3");
    CHECK(seed_3.at("exit code") == "0");
    CHECK(seed_3 == items(command + " --seed 3"));
    CHECK(changed(seed_3, items(command + " --seed 4")) == names);
  }
}

TEST_CASE("a larger bucket changes the peaks of plan, and more ranks its traffic", "[golden]") {
  const std::string command = "zerolab plan --model tiny --stages zero2 --set ";
  const std::string bucket = "zero_optimization.reduce_bucket_size=";
  const Items units = items(command + bucket + "1 --ranks 3");
  CHECK(units.at("exit code") == "0");
  const Names gradient{"stages[0].memory[1].predicted_peak_bytes"};
  CHECK(units.at("stages[0].memory[1].use") == "\"gradient\"");
  CHECK(differing(units, items(command + bucket + "5e8 --ranks 3")) == gradient);
  const std::string sent = "stages[0].communication[0].predicted_sent_bytes_per_rank";
  CHECK(units.at(sent) != items(command + bucket + "1 --ranks 5").at(sent));
}

TEST_CASE("a refusal leaves only its exit code, and paths of two documents differ", "[golden]") {
  CHECK(items("zerolab plan --no-such-flag") == Items{{"exit code", "2"}});
  const Items paths = items("zerolab plan --model tiny", "keys of plan");
  CHECK(paths.at("stages[].memory[].predicted_rest_bytes") == "number");
  CHECK(paths.count("stages[].memory[].rest_bytes") == 0);
  CHECK(items("zerolab compare --ranks 2 --device cpu" + kRun, "keys of compare")
            .at("stages[].memory[].rest_bytes") == "number");
}

}  // namespace golden
