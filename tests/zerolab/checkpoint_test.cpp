// Interrupts of a run that saves checkpoints, the commands that read them, and the other files of a
// run.

#include <signal.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;

namespace fs = std::filesystem;

TEST_CASE("a checkpoint that is not complete, or of other data, is refused or passed over",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string saved = folder / "saved", last = saved + "/step-00000004";
  REQUIRE(train(4, "--save-every 2 --out " + saved).code == 0);
  std::string text;
  for (int i = 0; i < 300; ++i) text += "other text " + std::to_string(i) + "\n";
  const std::string data = "--data " + write_file(folder / "other.txt", text) + " ",
                    resume = "--resume --out " + saved + " ",
                    trained =
                        Json::parse(document("checkpoint info " + last))["checkpoints"][0]["data"];
  const Finished other = train(6, resume + data);
  check_refused(other, "--new-data");
  check_says(other.err, {trained, std::to_string(text.size()) + " tokens"});
  CHECK(metrics_of(saved).size() == 4);  // nothing was removed
  CHECK(train(6, resume + data + "--new-data").code == 0);
  CHECK(metrics_of(saved).size() == 6);

  const std::string out = folder / "b";
  REQUIRE(train(4, "--save-every 2 --out " + out).code == 0);
  for (const char* name : {"metrics.jsonl", "model.safetensors", "report.html", "report.json"})
    fs::remove(out + "/" + name);
  const std::string holds = "already holds a run (step-00000004); ";
  check_refused(train(4, "--out " + out), holds + "add --resume");
  check_refused(call("compare --model tiny --steps 1 --out " + out),
                holds + "choose another folder");
  for (const std::string& name : checkpoints_in(out))
    fs::remove(out + "/" + name + "/checkpoint.json");
  check_refused(train(5, "--resume --out " + out), "is complete");
}

TEST_CASE("SIGTERM and Ctrl-C save a checkpoint, from which the run ends as if it went on",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string whole = folder / "whole";
  REQUIRE(train(100, "--ranks 2 --out " + whole).code == 0);
  for (const auto& [signal, by] :
       {std::pair{SIGTERM, "ended by SIGTERM"}, {SIGINT, "interrupted"}}) {
    const std::string out = folder / std::to_string(signal),
                      line = tiny_run(100, "--ranks 2 --save-every 1000 --out " + out);
    const Finished stopped = stopped_at(" 10/100 ", signal, line);
    CAPTURE(stopped.err);
    CHECK((stopped.code == 128 + signal && stopped.out.empty()));
    const auto saved = checkpoints_in(out);
    REQUIRE(saved.size() == 1);
    const int step = std::stoi(saved[0].substr(5));
    CHECK((step >= 10 && step < 100));
    check_says(stopped.err, {std::string("zerolab: ") + by + " after step " + std::to_string(step) +
                             " of 100; add --resume to go on from " + out + "/" + saved[0]});
    CHECK(metrics_of(out).size() == size_t(step));
    CHECK_FALSE(fs::exists(out + "/model.safetensors"));
    CHECK(weights_of(out + "/" + saved[0]) != weights_of(whole));
    REQUIRE(call(line + " -q --resume").code == 0);
    CHECK(weights_of(out) == weights_of(whole));
    CHECK(metrics_of(out) == metrics_of(whole));
  }
}

TEST_CASE("checkpoint info lists a folder, and says what one checkpoint holds", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", first = out + "/step-00000003",
                    second = out + "/step-00000006";
  REQUIRE(train(6, "--save-every 3 --stage 2 --ranks 3 --out " + out).code == 0);
  fs::remove(first + "/exp_avg.safetensors");
  const Finished list = call("checkpoint info " + out);
  REQUIRE(list.code == 0);
  check_says(list.out, {"\ncomplete  no\n", "\ncomplete     yes\n", "stage zero2",
                        "step-00000003/exp_avg.safetensors"});
  const Json json = Json::parse(document("checkpoint info " + out));
  CHECK(json["command"] == "checkpoint info");
  REQUIRE(json["checkpoints"].size() == 2);
  CHECK(json["checkpoints"][0]["complete"] == false);
  const Json& last = json["checkpoints"][1];
  CHECK((last["complete"] == true && last["step"] == 6 && last["next_window"] == 6 * 3 * 4 &&
         last["saved_by"]["ranks"] == "3"));
  int64_t bytes = 0;
  for (const Json& file : last["files"])
    bytes += int64_t(fs::file_size(second + "/" + file["name"].get<std::string>()));
  CHECK((last["files"].size() == 3 && last["bytes"] == bytes));

  const Finished one = call("checkpoint info " + second);
  CHECK(one.code == 0);
  check_says(one.out, {"AdamW", "model.safetensors", "exp_avg_sq.safetensors", "seed", "1337",
                       " tokens in 1 file", "\nnext window  72\n", "zero2"});
  check_refused(call("checkpoint info " + first), "exp_avg.safetensors");
}

TEST_CASE("checkpoint verify finds one changed bit, and names file and tensor", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", first = out + "/step-00000003: ok",
                    verify = "checkpoint verify " + out,
                    path = out + "/step-00000006/exp_avg_sq.safetensors";
  REQUIRE(train(6, "--save-every 3 --out " + out).code == 0);
  const Finished fine = call(verify);
  CHECK(fine.code == 0);
  CHECK(fine.out == first + "\n" + out + "/step-00000006: ok\n");
  std::string bytes = read_file(path);  // ends with the data of its last tensor
  bytes.back() = char(bytes.back() ^ 4);
  write_file(path, bytes);
  const Finished damaged = call(verify), json = call(verify + " --json");
  CHECK((damaged.code == 1 && json.code == 1));
  const auto told = lines(damaged.out);
  REQUIRE(told.size() == 2);
  CHECK(told[0] == first);
  CHECK(told[1].starts_with(path + ": tensor 'wte.weight' (bytes "));
  CHECK(contains(told[1], " to " + std::to_string(bytes.size()) + ") was changed"));
  const Json document = Json::parse(json.out);
  CHECK(document["ok"] == false);
  CHECK(document["checkpoints"][0]["problems"].empty());
  CHECK(document["checkpoints"][1]["problems"].size() == 1);
  CHECK(call(verify + "/step-00000003").code == 0);
  check_refused(train(8, "--resume " + out), "tensor 'wte.weight'");
}

TEST_CASE("the files of monitors and traces are in the report of a run", "[zerolab]") {
  const ScratchFolder folder;
  const std::string command =
      "cd " + folder.path() + " && $ZEROLAB train --model tiny --steps 1 --sample 0 ";
  const std::string none = "files       none; --out DIR keeps metrics and weights";
  CHECK(contains(shell(command).out, none));  // the twin
  const Finished board = shell(command + "--set tensorboard.enabled=true");
  REQUIRE(files_in(folder.path()).size() == 1);
  const std::string name = files_in(folder.path())[0];
  CHECK(name.starts_with("DeepSpeedJobName"));
  CHECK_FALSE(contains(board.out, none));
  CHECK(contains(board.out, "files       " + name + "/" + files_in(folder / name)[0]));
  const Json csv = Json::parse(
      shell(command + "--json --trace t.json --set csv_monitor.enabled=true").out)["files"];
  CHECK(csv["metrics"].is_null());
  CHECK(csv["more"] == Json{"t.json", "DeepSpeedJobName/Train_Samples_lr.csv",
                            "DeepSpeedJobName/Train_Samples_train_loss.csv"});
  for (const std::string file : csv["more"]) CHECK(fs::exists(folder / file));
  CHECK_FALSE(contains(shell(command + "--trace u.json").out, none));
}

TEST_CASE("names that a run takes in --out are refused for traces and monitors before training",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "o", save = "--save-every 2 --out " + out;
  Words refused;
  for (const char* name :
       {"latest", "step-00000002", "metrics.jsonl", "report.html", "./latest", "../o/latest"})
    refused.push_back(" --trace " + out + "/" + name);
  for (const char* monitor : {" --set csv_monitor=", " --set tensorboard="})
    for (const char* name : {"latest", "step-00000002", "step-00000002/logs"})
      refused.push_back(monitor +
                        Json{{"enabled", true}, {"output_path", out}, {"job_name", name}}.dump());
  for (const std::string& more : refused) {
    CAPTURE(more);
    check_refused(train(100'000, save + more), "of --out " + out);
    CHECK(files_in(folder.path()).empty());
  }
  CHECK(train(2, save + " --trace " + out + "/t.json").code == 0);  // the twin
  CHECK(files_in(out) == words("latest metrics.jsonl model.safetensors report.html report.json "
                               "step-00000002 t.json"));
}

}  // namespace cli
