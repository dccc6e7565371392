// Runs that are stopped and resumed end as those that are not, and replace no results of later
// steps than those they make.

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

namespace fs = std::filesystem;

const std::string kSave = "--save-every 4 ", kSaveTwo = "--save-every 2 ";

// Whether both runs have the same weights and metrics.
void check_same_run(const std::string& a, const std::string& b) {
  CHECK_FALSE(weights_of(a).empty());
  CHECK(weights_of(a) == weights_of(b));
  CHECK(metrics_of(a) == metrics_of(b));
}

// Names and bytes of a folder and its checkpoints; locks and times are not in them.
std::string content(const std::string& folder) {
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      all += entry.path().string() + "\n" + read_file(entry.path().string()) + "\n";
  return all;
}

// A run that is refused, and changes no file of `folder`.
void check_kept(const std::string& folder, int steps, const std::string& more,
                const std::string& text) {
  const std::string before = content(folder);
  CAPTURE(steps, more);
  check_refused(train(steps, more), text);
  CHECK((content(folder) == before));
}

}  // namespace

TEST_CASE("a run that stopped and was resumed has the weights and metrics of one that did not",
          "[zerolab]") {
  for (const std::string stage : {"ddp", "zero3"}) {
    CAPTURE(stage);
    const ScratchFolder folder;
    const std::string flags = "--ranks 2 --eval-every 3 --stage " + stage + " " + kSave + "--out ",
                      whole = folder / "whole", parts = folder / "parts", other = folder / "other";
    REQUIRE(train(12, flags + whole).code == 0);
    CHECK(files_in(whole) == words("latest metrics.jsonl model.safetensors report.html report.json "
                                   "step-00000004 step-00000008 step-00000012"));
    REQUIRE(train(7, flags + parts).code == 0);  // the last step is saved, too
    CHECK(checkpoints_in(parts) == words("step-00000004 step-00000007"));
    REQUIRE(train(12, flags + parts + " --resume --keep 2").code == 0);
    CHECK(checkpoints_in(parts) == words("step-00000008 step-00000012"));
    check_same_run(whole, parts);
    REQUIRE(train(12, flags + other + " --seed 7").code == 0);
    CHECK(weights_of(whole) != weights_of(other));
    CHECK(metrics_of(whole) != metrics_of(other));
  }
}

TEST_CASE("a resumed run reports the steps that it made", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(4, kSave + "--out " + out).code == 0);
  const Json report = Json::parse(document(tiny_run(10, kSave + "-q --resume " + out)));
  CHECK(report["resumed_from"] == Json{{"folder", out + "/step-00000004"}, {"step", 4}});
  CHECK((report["steps"] == 10 && report["loss"].size() == 6 && report["tokens"] == 6 * 4 * 32));
  REQUIRE(report["checkpoints"].size() == 2);
  CHECK(report["checkpoints"][0]["step"] == 8);
  CHECK(report["checkpoints"][1]["folder"] == out + "/step-00000010");
  CHECK(report["checkpoints"][1]["bytes"] > 12 * 34688);  // headers come on top
  for (const Json& saved : report["checkpoints"]) {
    CHECK(saved["seconds"] > 0.0);
    CHECK(saved["stall_seconds"] <= saved["seconds"]);
  }
  const Json plain = Json::parse(document(tiny_run(1, "")));
  CHECK_FALSE((plain.contains("resumed_from") || plain.contains("checkpoints")));

  const Finished text = call(tiny_run(12, kSave + "--resume --out " + out));
  check_says(text.err, {"resumed from " + out + "/step-00000010: step 10 of 12\n", "step 11/12",
                        "checkpoint " + out + "/step-00000012: "});
  CHECK_FALSE(contains(text.err, "step 10/12"));
  check_says(text.out,
             {"at step 12, ", " at step 11\n", "            " + out + "/step-00000012\n"});

  const std::string unsaved = "note: this run saves no checkpoint; add --save-every K";
  CHECK_FALSE(contains(text.err, unsaved));
  check_says(call(tiny_run(13, "--resume --out " + out)).err, {unsaved});
}

TEST_CASE("metrics go on after the step of the checkpoint, without doubles or half lines",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", file = out + "/metrics.jsonl",
                    again = kSave + "--resume --out " + out;
  REQUIRE(train(8, kSave + "--out " + out).code == 0);
  const std::string complete = read_file(file);
  const auto whole = metrics_of(out);
  fs::remove_all(out + "/step-00000008");  // as if killed between step 4 and 8
  write_file(file, complete.substr(0, complete.size() - 9));
  REQUIRE(train(8, again).code == 0);
  CHECK(metrics_of(out) == whole);
  // Steps that are missing are named.
  fs::remove_all(out + "/step-00000008");
  write_file(file, complete.substr(0, complete.find("\n") + 1));
  const Finished gap = call(tiny_run(8, again));
  CHECK(contains(gap.err, "note: " + file + " holds no steps from 2 to 4\n"));
  CHECK(metrics_of(out) == Words{whole[0], whole[4], whole[5], whole[6], whole[7]});
}

TEST_CASE("--resume begins at the start where there is no checkpoint yet", "[zerolab]") {
  const ScratchFolder folder;
  const std::string a = folder / "a", b = folder / "b", c = folder / "c";
  const Finished first = call(tiny_run(5, kSave + "--resume --out " + a));
  REQUIRE(first.code == 0);
  check_says(first.err, {"note: no checkpoint is in " + a + " yet", "step 1/5"});
  REQUIRE(train(5, kSave + "--out " + b).code == 0);
  check_same_run(a, b);
  // The same where a run was killed before its first checkpoint.
  fs::create_directory(c);
  write_file(c + "/metrics.jsonl", "{\"step\":1,\"loss\":3}\n");
  REQUIRE(train(5, kSave + "--resume --out " + c).code == 0);
  check_same_run(c, b);
}

TEST_CASE("a finished run says so, and changes nothing; another process keeps a run off",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", resume = "--resume " + out;
  REQUIRE(train(8, kSave + "--out " + out).code == 0);
  const std::string before = content(out), weights = weights_of(out);
  const Finished again = train(8, kSave + "--resume --out " + out);
  CHECK((again.code == 0 && again.out.empty()));
  CHECK(again.err == out + " is finished: it is at step 8 of 8; --steps N trains on\n");
  check_says(train(5, resume).err,
             {"is finished: it is at step 8, and --steps is 5; --steps N trains on"});
  CHECK(Json::parse(document(tiny_run(8, "-q " + resume))) == Json{{"schema", 1},
                                                                   {"command", "train"},
                                                                   {"finished", true},
                                                                   {"step", 8},
                                                                   {"steps", 8},
                                                                   {"folder", out}});
  CHECK((content(out) == before));
  // A run that was killed after its last checkpoint gets its weights.
  fs::remove(out + "/model.safetensors");
  CHECK(train(8, resume).code == 0);
  CHECK(weights_of(out) == weights);

  const int lock = open((out + "/metrics.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(flock(lock, LOCK_EX) == 0);  // as a run that goes on there
  check_refused(train(9, resume), "another process writes into this folder");
  close(lock);
  const Finished longer = train(9, resume);
  CHECK(longer.code == 0);
  CHECK_FALSE(contains(longer.err, "is finished"));
}

TEST_CASE("--resume of one checkpoint goes on in another folder", "[zerolab]") {
  const ScratchFolder folder;
  const std::string a = folder / "a", b = folder / "b",
                    middle = "--resume " + a + "/step-00000004 ";
  REQUIRE(train(8, kSave + "--out " + a).code == 0);
  REQUIRE(train(8, middle + "--out " + b).code == 0);
  CHECK(weights_of(b) == weights_of(a));
  auto rest = metrics_of(a);
  rest.erase(rest.begin(), rest.begin() + 4);
  CHECK(metrics_of(b) == rest);
  CHECK(checkpoints_in(b).empty());  // without --save-every
  check_kept(b, 8, middle + "--out " + b, "already holds a run");
  CHECK(metrics_of(a).size() == 8);
}

TEST_CASE("a resume keeps the results of a run that ended after its last checkpoint", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a", whole = folder / "whole", resume = "--resume " + out;
  REQUIRE(train(4, kSaveTwo + "--out " + out).code == 0);
  REQUIRE(train(8, resume).code == 0);  // steps 5 to 8 are in no checkpoint
  for (const bool killed : {false, true}) {
    if (killed) fs::remove(out + "/model.safetensors");
    for (const int steps : {3, 4, 6})
      check_kept(out, steps, resume, "holds metrics of step 8, but this run begins after step 4");
  }
  REQUIRE(train(8, resume).code == 0);  // makes them again
  CHECK(metrics_of(out).size() == 8);
  REQUIRE(train(9, resume).code == 0);  // and so does a longer run
  REQUIRE(train(9, "--out " + whole).code == 0);
  check_same_run(out, whole);
}

TEST_CASE("a run that was killed beyond its newest checkpoint is resumed by the same command",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a", whole = folder / "whole",
                    again = "--save-every 1000 --eval-every 2 --resume --out " + out;
  // Leaves weights of step 2.
  REQUIRE(train(2, "--save-every 2 --eval-every 2 --out " + out).code == 0);
  REQUIRE(stopped_at("held-out", SIGKILL, tiny_run(100'000, again)).code == 128 + SIGKILL);
  CHECK(checkpoints_in(out) == Words{"step-00000002"});
  const int steps = int(metrics_of(out).size()) + 1;
  REQUIRE(steps > 4);
  REQUIRE(train(steps, "--eval-every 2 --out " + whole).code == 0);
  const Finished resumed = train(steps, again);
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  check_same_run(out, whole);
}

TEST_CASE("a resume names each setting of the update that has changed", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a";
  REQUIRE(train(2, kSaveTwo + "--precision bf16 --out " + out).code == 0);
  int copies = 0;
  const auto resumed = [&](const std::string& more) {
    return call(tiny_run(3, "--resume " + out + "/step-00000002 --out " +
                                (folder / std::to_string(copies++)) + " " + more))
        .err;
  };
  const std::string bf16 = "--precision bf16 --set ", saved = "the checkpoint was saved with ";
  const std::string same = resumed("--precision bf16");
  CHECK(contains(same, "step 3/3"));
  CHECK_FALSE(contains(same, saved));
  for (const auto& [flags, note] :
       {std::pair<std::string, std::string>{bf16 + "optimizer.params.lr=0.002",
                                            "learning_rate 0.001; this run goes on with 0.002"},
        {"--precision fp16", "loss_scale none; this run goes on with dynamic, from 2^16"},
        {"--precision bf16 --stage zero3 --set gradient_accumulation_steps=2",
         "stage ddp, ranks 1, accumulation 1; this run goes on with stage zero3, ranks 1, "
         "accumulation 2"}})
    check_says(resumed(flags), {"note: " + saved + note});
}

TEST_CASE("the weights of a checkpoint win over --init-from, with a note", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a", other = folder / "b", whole = folder / "whole",
                    both = folder / "both", resume = "--resume " + out + "/step-00000002 --out ";
  REQUIRE(train(1, "--seed 7 --out " + other).code == 0);
  REQUIRE(train(2, kSaveTwo + "--out " + out).code == 0);
  REQUIRE(train(4, resume + whole).code == 0);
  const Finished finished = call("train --sample 0 --steps 4 --init-from " + other +
                                 "/model.safetensors " + resume + both);
  CHECK(finished.code == 0);
  check_says(finished.err, {"note: the weights are the checkpoint's, not those of --init-from"});
  CHECK(weights_of(both) == weights_of(whole));
  CHECK(weights_of(other) != weights_of(whole));  // the twin
}

}  // namespace cli
