// Runs that are stopped and resumed end as those that are not.

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/checkpoint_run.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

const Flags kSave = {"--save-every", "4"};

// Whether both runs have the same weights and metrics.
void check_same_run(const std::string& a, const std::string& b) {
  CHECK_FALSE(weights_of(a).empty());
  CHECK(weights_of(a) == weights_of(b));
  CHECK(metrics_of(a) == metrics_of(b));
}

}  // namespace

TEST_CASE("a run that stopped and was resumed has the weights and metrics of one that did not",
          "[zerolab]") {
  for (const char* stage : {"ddp", "zero3"}) {
    CAPTURE(stage);
    const ScratchFolder folder;
    const Flags flags = Flags{"--stage", stage, "--ranks", "2", "--eval-every", "3"} + kSave;
    const auto to = [&](const char* name, const Flags& more = {}) {
      return flags + Flags{"--out", folder / name} + more;
    };
    REQUIRE(train(12, to("whole")).code == 0);
    CHECK(files_in(folder / "whole") == Flags{"latest", "metrics.jsonl", "model.safetensors",
                                              "report.html", "report.json", "step-00000004",
                                              "step-00000008", "step-00000012"});
    REQUIRE(train(7, to("parts")).code == 0);  // the last step is saved, too
    CHECK(checkpoints_in(folder / "parts") == Flags{"step-00000004", "step-00000007"});
    REQUIRE(train(12, to("parts", {"--resume"})).code == 0);
    CHECK(checkpoints_in(folder / "parts") ==
          Flags{"step-00000007", "step-00000008", "step-00000012"});
    check_same_run(folder / "whole", folder / "parts");
    REQUIRE(train(12, to("other", {"--seed", "7"})).code == 0);
    CHECK(weights_of(folder / "whole") != weights_of(folder / "other"));
    CHECK(metrics_of(folder / "whole") != metrics_of(folder / "other"));
  }
}

TEST_CASE("a resumed run reports the steps that it made", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(4, kSave + Flags{"--out", out}).code == 0);
  const Finished finished = train(10, kSave + Flags{"--resume", out, "--json"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const Json report = Json::parse(finished.out);
  CHECK(report["resumed_from"] == Json{{"folder", out + "/step-00000004"}, {"step", 4}});
  CHECK(report["steps"] == 10);
  CHECK(report["loss"].size() == 6);
  CHECK(report["tokens"] == 6 * 4 * 32);
  REQUIRE(report["checkpoints"].size() == 2);
  CHECK(report["checkpoints"][0]["step"] == 8);
  CHECK(report["checkpoints"][1]["folder"] == out + "/step-00000010");
  CHECK(report["checkpoints"][1]["bytes"] > 12 * 34688);  // headers come on top
  for (const Json& saved : report["checkpoints"]) {
    CHECK(saved["seconds"] > 0.0);
    CHECK(saved["stall_seconds"] <= saved["seconds"]);
  }
  const Json plain = Json::parse(train(1, {"--json"}).out);
  CHECK_FALSE((plain.contains("resumed_from") || plain.contains("checkpoints")));

  const Finished text = zerolab(tiny_run(12, kSave + Flags{"--out", out, "--resume"}));
  CHECK(contains(text.err, "resumed from " + out + "/step-00000010: step 10 of 12\n"));
  CHECK(contains(text.err, "step 11/12"));
  CHECK_FALSE(contains(text.err, "step 10/12"));
  CHECK(contains(text.err, "checkpoint " + out + "/step-00000012: "));
  CHECK(contains(text.out, "at step 12, "));
  CHECK(contains(text.out, " at step 11\n"));
  CHECK(contains(text.out, "checkpoints 1 saved, the newest is " + out + "/step-00000012"));
}

TEST_CASE("a run that was killed while it saved is resumed to the same end", "[zerolab]") {
  const ScratchFolder folder;
  for (const char* writes : {"wait", "still", "snapshot"}) {
    CAPTURE(writes);
    const std::string out = folder / writes;
    const Flags flags = {"--save-every",        "5",   "--ranks", "2", "--stage", "2",
                         "--checkpoint-writes", writes};
    const Finished killed =
        stopped_at("step-00000020", SIGKILL, tiny_run(60, flags + Flags{"--out", out}));
    REQUIRE(killed.code == 128 + SIGKILL);
    CHECK_FALSE(std::filesystem::exists(out + "/model.safetensors"));
    const Finished resumed = train(60, flags + Flags{"--out", out, "--resume", "--json"});
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    CHECK(Json::parse(resumed.out)["resumed_from"]["step"] >= 20);
    CHECK(checkpoints_in(out) == Flags{"step-00000050", "step-00000055", "step-00000060"});
    if (out != folder / "wait") check_same_run(folder / "wait", out);
  }
  REQUIRE(train(60, {"--ranks", "2", "--stage", "2", "--out", folder / "whole"}).code == 0);
  check_same_run(folder / "wait", folder / "whole");
}

TEST_CASE("any stage and number of ranks goes on, and reads each window of the data once",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", whole = folder / "whole";
  const auto flags = [](const char* stage, const char* ranks) {
    return Flags{"--save-every", "10", "--stage", stage, "--ranks", ranks};
  };
  REQUIRE(train(9, flags("ddp", "3") + Flags{"--out", whole}).code == 0);
  int steps = 3;  // equal ranks: all stages have the same bits
  REQUIRE(train(3, flags("zero3", "3") + Flags{"--out", out}).code == 0);
  for (const char* stage : {"zero1", "zero2"})
    REQUIRE(train(steps += 3, flags(stage, "3") + Flags{"--out", out, "--resume"}).code == 0);
  check_same_run(whole, out);
  // Then 3 steps of 2 ranks with 2 micro-batches of 2 windows, after 9 of 3 ranks with one of 4.
  const Finished other =
      train(12, flags("zero3", "2") + Flags{"--out", out, "--resume", "--set",
                                            "gradient_accumulation_steps=2", "--set",
                                            "train_micro_batch_size_per_gpu=2"});
  INFO(other.err);
  REQUIRE(other.code == 0);
  const auto steps_of = metrics_of(out);
  REQUIRE(steps_of.size() == 12);
  for (size_t i = 0; i < 12; ++i) CHECK(Json::parse(steps_of[i])["step"] == i + 1);
  const Finished info = zerolab({"checkpoint", "info", out + "/step-00000012", "--json"});
  CHECK(Json::parse(info.out)["checkpoints"][0]["next_window"] == 9 * 3 * 4 + 3 * 2 * 2 * 2);
}

TEST_CASE("metrics go on after the step of the checkpoint, without doubles or half lines",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", file = out + "/metrics.jsonl";
  REQUIRE(train(8, kSave + Flags{"--out", out}).code == 0);
  const std::string complete = read_file(file);
  const auto whole = metrics_of(out);
  std::filesystem::remove_all(out + "/step-00000008");  // as if killed between step 4 and 8
  write_file(file, complete.substr(0, complete.size() - 9));
  REQUIRE(train(8, kSave + Flags{"--out", out, "--resume"}).code == 0);
  CHECK(metrics_of(out) == whole);
  // Steps that are missing are named.
  std::filesystem::remove_all(out + "/step-00000008");
  write_file(file, complete.substr(0, complete.find("\n") + 1));
  const Finished gap = zerolab(tiny_run(8, kSave + Flags{"--out", out, "--resume"}));
  CHECK(contains(gap.err, "note: " + file + " holds no steps from 2 to 4\n"));
  CHECK(metrics_of(out) == Flags{whole[0], whole[4], whole[5], whole[6], whole[7]});
}

TEST_CASE("--resume begins at the start where there is no checkpoint yet", "[zerolab]") {
  const ScratchFolder folder;
  const Finished first = zerolab(tiny_run(5, kSave + Flags{"--out", folder / "a", "--resume"}));
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK(contains(first.err, "note: no checkpoint is in " + (folder / "a") + " yet"));
  CHECK(contains(first.err, "step 1/5"));
  REQUIRE(train(5, kSave + Flags{"--out", folder / "b"}).code == 0);
  check_same_run(folder / "a", folder / "b");
  // The same where a run was killed before its first checkpoint.
  std::filesystem::create_directory(folder / "c");
  write_file(folder / "c/metrics.jsonl", "{\"step\":1,\"loss\":3}\n");
  REQUIRE(train(5, kSave + Flags{"--out", folder / "c", "--resume"}).code == 0);
  check_same_run(folder / "c", folder / "b");
}

TEST_CASE("a finished run says so, and changes nothing", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(8, kSave + Flags{"--out", out}).code == 0);
  const std::string weights = weights_of(out), metrics = read_file(out + "/metrics.jsonl");
  const auto files = files_in(out);
  Finished again = train(8, kSave + Flags{"--out", out, "--resume"});
  CHECK(again.code == 0);
  CHECK(again.out.empty());
  CHECK(again.err == out + " is finished: it is at step 8 of 8; --steps N trains on\n");
  CHECK(files_in(out) == files);
  CHECK(weights_of(out) == weights);
  CHECK(read_file(out + "/metrics.jsonl") == metrics);
  CHECK(contains(train(5, {"--resume", out}).err,
                 "is finished: it is at step 8, and --steps is 5; --steps N trains on"));
  again = train(8, {"--resume", out, "--json"});
  CHECK(Json::parse(again.out) == Json{{"schema", 1},
                                       {"command", "train"},
                                       {"finished", true},
                                       {"step", 8},
                                       {"steps", 8},
                                       {"folder", out}});
  CHECK(again.err.empty());
  // A run that was killed after its last checkpoint gets its weights.
  std::filesystem::remove(out + "/model.safetensors");
  CHECK(train(8, {"--resume", out}).code == 0);
  CHECK(weights_of(out) == weights);
  CHECK_FALSE(contains(train(9, {"--resume", out}).err, "is finished"));
}

TEST_CASE("--resume of one checkpoint goes on in another folder", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(train(8, kSave + Flags{"--out", folder / "a"}).code == 0);
  const std::string middle = folder / "a/step-00000004";
  REQUIRE(train(8, {"--resume", middle, "--out", folder / "b"}).code == 0);
  CHECK(weights_of(folder / "b") == weights_of(folder / "a"));
  auto rest = metrics_of(folder / "a");
  rest.erase(rest.begin(), rest.begin() + 4);
  CHECK(metrics_of(folder / "b") == rest);
  CHECK(checkpoints_in(folder / "b").empty());  // without --save-every
  // In its own folder it would go on beside the later checkpoint.
  const Finished refused = train(8, kSave + Flags{"--resume", middle});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "holds a checkpoint of step 8, but this run begins after step 4"));
  CHECK(metrics_of(folder / "a").size() == 8);
  CHECK(contains(train(8, {"--resume", middle, "--out", folder / "b"}).err, "already holds a run"));
}

TEST_CASE("a checkpoint is no --out, under whatever name", "[zerolab]") {
  const ScratchFolder folder;
  const std::string run = folder / "run", step = run + "/step-00000004";
  REQUIRE(train(4, kSave + Flags{"--out", run}).code == 0);
  const std::string before = weights_of(step);
  for (const Flags& more :
       {Flags{"--resume", step, "--out", step}, Flags{"--out", step, "--resume"},
        kSave + Flags{"--out", step, "--resume"}}) {
    const Finished finished = train(8, more);
    INFO(finished.err);
    CHECK(finished.code == 2);
    CHECK(contains(finished.err, "is a checkpoint; name a folder for the run"));
  }
  CHECK(weights_of(step) == before);
}

TEST_CASE("two runs do not write into one folder", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(4, kSave + Flags{"--out", out}).code == 0);
  const int lock = open((out + "/metrics.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(flock(lock, LOCK_EX) == 0);  // as a run that goes on there
  const Finished finished = train(8, {"--resume", out});
  CHECK(finished.code == 2);
  CHECK(contains(finished.err, "another process writes into this folder"));
  close(lock);
  CHECK(train(8, {"--resume", out}).code == 0);
}

}  // namespace cli
