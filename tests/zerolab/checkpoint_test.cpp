// The flags of checkpoints, interrupts of a run that saves some, and the commands that read them.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/checkpoint_run.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

void check_refused(const Finished& finished, const std::string& part) {
  CAPTURE(finished.err);
  CHECK(finished.code == 2);
  CHECK(finished.out.empty());
  CHECK(contains(finished.err, part));
}

// The tensor that has byte `at` of a safetensors file, and a byte of its data: by the format's
// definition, 8 bytes with the size of a JSON header, the header, the data.
struct Place {
  std::string tensor;
  size_t byte = 0;
};
Place last_byte_of_a_tensor(const std::string& file) {
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const Json json = Json::parse(file.substr(8, header));
  for (const auto& [name, entry] : json.items())
    if (name != "__metadata__")
      return {name, 8 + size_t(header) + entry["data_offsets"][1].get<size_t>() - 1};
  return {};
}

}  // namespace

TEST_CASE("flags of checkpoints without effect are refused with what is missing", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  check_refused(train(2, {"--save-every", "1"}),
                "--save-every needs --out DIR, the folder that gets the checkpoints");
  check_refused(train(2, {"--resume"}), "--resume needs the folder of the run");
  check_refused(train(2, {"--out", out, "--keep", "2"}),
                "--keep has no effect without --save-every K");
  check_refused(train(2, {"--out", out, "--checkpoint-writes", "still"}),
                "--checkpoint-writes has no effect without --save-every K");
  check_refused(train(2, {"--out", out, "--new-data"}),
                "--new-data has no effect without --resume");
  check_refused(train(2, {"--out", out, "--save-every", "0"}), "--save-every: '0' is too small");
  check_refused(train(2, {"--out", out, "--save-every", "1", "--keep", "0"}),
                "--keep: '0' is too small");
  check_refused(train(2, {"--out", out, "--save-every", "1", "--checkpoint-writes", "later"}),
                "'later' is none of wait, still, snapshot");
  check_refused(train(2, {"--out", out, "--resume", ""}), "--resume: the name is empty");
  check_refused(train(2, {"--resume", folder / "a", "--resume", folder / "b"}),
                "--resume is given twice");
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK(train(2, {"--out", out, "--save-every", "1", "--resume", "--quiet"}).code == 0);
}

TEST_CASE("--resume refuses what would not go on with a run", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  check_refused(train(2, {"--resume", folder / "typo", "--out", out}),
                "--resume " + (folder / "typo") + ": no checkpoint is there");
  check_refused(train(2, {"--resume", folder / "typo/step-00000004"}), "step-00000004");
  CHECK(files_in(folder.path()).empty());
  const std::string planned = folder / "plan";
  REQUIRE(zerolab({"plan", "--model", "tiny", "-q", "--out", planned}).code == 0);
  check_refused(train(2, {"--out", planned, "--resume"}), "already holds a run (report.json)");
  REQUIRE(train(2, {"--out", out}).code == 0);
  const std::string weights = weights_of(out), metrics = read_file(out + "/metrics.jsonl");
  check_refused(train(2, {"--out", out, "--resume"}),
                "holds the weights of a run (model.safetensors), but no checkpoint to go on from");
  check_refused(train(2, {"--out", out}), "already holds a run (metrics.jsonl); choose another");
  CHECK(weights_of(out) == weights);
  CHECK(read_file(out + "/metrics.jsonl") == metrics);

  const std::string saved = folder / "saved";
  REQUIRE(train(4, {"--out", saved, "--save-every", "2"}).code == 0);
  check_refused(train(4, {"--out", saved}),
                "already holds a run (metrics.jsonl); add --resume to go on with it");
  for (const char* name : {"metrics.jsonl", "model.safetensors", "report.html", "report.json"})
    std::filesystem::remove(saved + "/" + name);
  check_refused(train(4, {"--out", saved}), "already holds a run (step-00000004); add --resume");
  check_refused(zerolab({"compare", "--model", "tiny", "--steps", "1", "--out", saved}),
                "already holds a run (step-00000004); choose another folder");
  std::filesystem::resize_file(saved + "/step-00000004/model.safetensors", 100);
  const Finished older = train(5, {"--out", saved, "--resume", "--json"});
  CHECK(Json::parse(older.out)["resumed_from"]["step"] == 2);  // the newest is not complete
  for (const std::string& name : checkpoints_in(saved))
    std::filesystem::remove(saved + "/" + name + "/checkpoint.json");
  check_refused(train(5, {"--out", saved, "--resume"}), "is complete");
}

TEST_CASE("a checkpoint of another model, optimizer or data set is refused with both",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(2, {"--out", out, "--save-every", "2"}).code == 0);
  const auto resumed = [&](const Flags& more) { return train(4, Flags{"--resume", out} + more); };
  const Finished heads = resumed({"--n-head", "4"}), width = resumed({"--n-embd", "64"});
  check_refused(heads, "trained on the model");
  CHECK((contains(heads.err, "n_head 2") && contains(heads.err, "n_head 4")));
  check_refused(width, "has shape");
  CHECK((contains(width.err, "(96)") && contains(width.err, "(192)")));  // 3 times the width
  check_refused(resumed({"--n-layer", "3"}), "'h.2.");
  const Finished optimizer = resumed({"--set", "optimizer.type=SGD"});
  check_refused(optimizer, "trained with the optimizer 'AdamW");
  CHECK(contains(optimizer.err, "'SGD"));
  std::string text;
  for (int i = 0; i < 300; ++i) text += "other text " + std::to_string(i) + "\n";
  const Flags data = {"--data", write_file(folder / "other.txt", text)};
  const Finished other = resumed(data);
  check_refused(other, "--new-data");
  const std::string size = std::to_string(text.size()) + " tokens";
  const Json saved = Json::parse(zerolab({"checkpoint", "info", out, "--json"}).out);
  const std::string trained = saved["checkpoints"][0]["data"];
  CHECK_FALSE(contains(trained, size));
  CHECK((contains(other.err, trained) && contains(other.err, size)));
  CHECK(metrics_of(out).size() == 2);  // nothing was removed
  CHECK(resumed(data + Flags{"--new-data"}).code == 0);
  CHECK(metrics_of(out).size() == 4);
}

TEST_CASE("SIGTERM and Ctrl-C save a checkpoint, from which the run ends as if it went on",
          "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(train(150, {"--ranks", "2", "--out", folder / "whole"}).code == 0);
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string out = folder / (signal == SIGINT ? "interrupted" : "ended");
    const Flags flags = tiny_run(150, {"--ranks", "2", "--out", out, "--save-every", "1000"});
    const Finished stopped = stopped_at(" 10/150 ", signal, flags);
    CAPTURE(stopped.err);
    CHECK(stopped.code == 128 + signal);
    CHECK(stopped.out.empty());
    const auto saved = checkpoints_in(out);
    REQUIRE(saved.size() == 1);
    const int step = std::stoi(saved[0].substr(5));
    CHECK((step >= 10 && step < 150));
    const std::string by = signal == SIGINT ? "interrupted" : "ended by SIGTERM";
    CHECK(contains(stopped.err, "zerolab: " + by + " after step " + std::to_string(step) +
                                    " of 150; add --resume to go on from " + out + "/" + saved[0]));
    CHECK(metrics_of(out).size() == size_t(step));
    CHECK_FALSE(std::filesystem::exists(out + "/model.safetensors"));
    CHECK(weights_of(out + "/" + saved[0]) != weights_of(folder / "whole"));
    REQUIRE(zerolab(flags + Flags{"-q", "--resume"}).code == 0);
    CHECK(weights_of(out) == weights_of(folder / "whole"));
    CHECK(metrics_of(out) == metrics_of(folder / "whole"));
  }
}

TEST_CASE("the newest checkpoints are kept, and each way of writing writes the same bytes",
          "[zerolab]") {
  const ScratchFolder folder;
  for (const char* writes : {"wait", "still", "snapshot"}) {
    CAPTURE(writes);
    const std::string out = folder / writes;
    REQUIRE(train(7, {"--out", out, "--save-every", "2", "--keep", "2", "--checkpoint-writes",
                      writes, "--stage", "3", "--ranks", "3"})
                .code == 0);
    CHECK(checkpoints_in(out) == Flags{"step-00000006", "step-00000007"});
    for (const std::string& step : checkpoints_in(out))
      for (const std::string& name : files_in(out + "/" + step)) {
        CAPTURE(step, name);
        CHECK(read_file(out + "/" + step + "/" + name) ==
              read_file(folder / ("wait/" + step + "/" + name)));
      }
  }
  CHECK(read_file(folder / "wait/step-00000006/exp_avg.safetensors") !=
        read_file(folder / "wait/step-00000007/exp_avg.safetensors"));
}

TEST_CASE("checkpoint info lists a folder, and says what one checkpoint holds", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(6, {"--out", out, "--save-every", "3", "--stage", "2", "--ranks", "3"}).code == 0);
  std::filesystem::remove(out + "/step-00000003/exp_avg.safetensors");
  const Finished list = zerolab({"checkpoint", "info", out});
  REQUIRE(list.code == 0);
  REQUIRE(lines(list.out).size() == 5);
  CHECK(contains(lines(list.out)[2], "broken"));
  CHECK((contains(lines(list.out)[3], "zero2") && contains(lines(list.out)[3], "complete")));
  CHECK(contains(lines(list.out)[4], "step-00000003/exp_avg.safetensors"));
  const Json document = Json::parse(zerolab({"checkpoint", "info", out, "--json"}).out);
  CHECK(document["command"] == "checkpoint info");
  REQUIRE(document["checkpoints"].size() == 2);
  CHECK(document["checkpoints"][0]["complete"] == false);
  const Json& last = document["checkpoints"][1];
  CHECK(last["complete"] == true);
  CHECK(last["step"] == 6);
  CHECK(last["next_window"] == 6 * 3 * 4);
  CHECK(last["saved_by"]["ranks"] == "3");
  int64_t bytes = 0;
  for (const Json& file : last["files"])
    bytes += int64_t(read_file(out + "/step-00000006/" + file["name"].get<std::string>()).size());
  CHECK(last["files"].size() == 3);
  CHECK(last["bytes"] == bytes);

  const Finished one = zerolab({"checkpoint", "info", out + "/step-00000006"});
  CHECK(one.code == 0);
  for (const char* part : {"AdamW", "model.safetensors", "exp_avg_sq.safetensors", "seed", "1337",
                           " tokens in 1 file", "the next window is 72", "zero2"})
    CHECK(contains(one.out, part));
  check_refused(zerolab({"checkpoint", "info", out + "/step-00000003"}), "exp_avg.safetensors");
  check_refused(zerolab({"checkpoint", "info", folder / "none"}), "no checkpoint is there");
  check_refused(zerolab({"checkpoint", "info"}), "which folder?");
}

TEST_CASE("checkpoint verify finds one changed bit, and names file and tensor", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(6, {"--out", out, "--save-every", "3"}).code == 0);
  const Finished fine = zerolab({"checkpoint", "verify", out});
  CHECK(fine.code == 0);
  CHECK(fine.out == out + "/step-00000003: ok\n" + out + "/step-00000006: ok\n");
  const std::string path = out + "/step-00000006/exp_avg_sq.safetensors";
  std::string bytes = read_file(path);
  const Place place = last_byte_of_a_tensor(bytes);
  bytes[place.byte] = char(bytes[place.byte] ^ 4);
  write_file(path, bytes);
  const Finished damaged = zerolab({"checkpoint", "verify", out});
  CAPTURE(damaged.out);
  CHECK(damaged.code == 1);
  REQUIRE(lines(damaged.out).size() == 2);
  CHECK(lines(damaged.out)[0] == out + "/step-00000003: ok");
  CHECK(lines(damaged.out)[1].starts_with(path + ": tensor '" + place.tensor + "' (bytes "));
  CHECK(contains(damaged.out, " to " + std::to_string(place.byte + 1) + ") was changed"));
  const Json document = Json::parse(zerolab({"checkpoint", "verify", out, "--json"}).out);
  CHECK(document["ok"] == false);
  CHECK(document["checkpoints"][0]["problems"].empty());
  CHECK(document["checkpoints"][1]["problems"].size() == 1);
  CHECK(zerolab({"checkpoint", "verify", out + "/step-00000003"}).code == 0);
  const Finished resumed = train(8, {"--resume", out});
  check_refused(resumed, "tensor '" + place.tensor + "'");
  check_refused(zerolab({"checkpoint", "verify", folder / "none"}), "no checkpoint is there");
  check_refused(zerolab({"checkpoint", "verify", out + "/step-00000009"}),
                "no checkpoint is there");
}

TEST_CASE("plan says what a checkpoint takes, and a run takes that", "[zerolab]") {
  // Psi = 34,688; padded to 16 per parameter and 48 per unit: 34,752 for 3 ranks.
  const auto of = [](const Flags& more, const std::string& stage = "zero3") {
    const Finished finished = zerolab(
        Flags{"plan", "--model", "tiny", "--ranks", "3", "--stages", stage, "--json"} + more);
    return Json::parse(finished.out)["stages"][0];
  };
  for (const char* stage : {"ddp", "zero1", "zero2", "zero3"}) {
    const Json bytes = of({}, stage)["checkpoint"];
    CHECK(bytes["disk_bytes"] == 12 * 34688);
    CHECK(bytes["host_bytes"] == Json{{"wait", 0}, {"still", 0}, {"snapshot", 12 * 34752 / 3}});
  }
  const std::string sgd = "optimizer.type=SGD", momentum = "optimizer.params.momentum=0.9";
  CHECK(of({"--set", sgd, "--set", momentum})["checkpoint"]["disk_bytes"] == 8 * 34688);
  CHECK(of({"--set", sgd})["checkpoint"]["disk_bytes"] == 4 * 34688);
  CHECK(of({"--precision", "bf16"})["checkpoint"]["disk_bytes"] == 12 * 34688);
  CHECK(of({"--as", "cuda"})["checkpoint"]["host_bytes"]["still"] == 1 << 20);
  CHECK_FALSE(of({}).contains("predicted_peak_host_bytes"));
  const Flags save = {"--save-every", "1", "--checkpoint-writes"};
  CHECK_FALSE(of(save + Flags{"still"}).contains("predicted_peak_host_bytes"));
  CHECK(of(save + Flags{"snapshot"})["predicted_peak_host_bytes"][0] == 12 * 34752 / 3);
  CHECK(of(save + Flags{"still", "--as", "cuda"})["predicted_peak_host_bytes"][0] == 1 << 20);
  check_refused(zerolab({"plan", "--model", "tiny", "--checkpoint-writes", "still"}),
                "--checkpoint-writes has no effect without --save-every K");
  const Finished text = zerolab({"plan", "--model", "tiny", "--ranks", "3"});
  CHECK((contains(text.out, "a checkpoint on disk ") && contains(text.out, "406.50 KiB")));

  const ScratchFolder folder;
  const Finished run = train(3, save + Flags{"snapshot", "--out", folder / "run", "--json",
                                             "--stage", "3", "--ranks", "3"});
  REQUIRE(run.code == 0);
  int64_t host = 0;
  const Json report = Json::parse(run.out);
  for (const Json& row : report["memory"])
    if (row["pool"] == "host" && row["rank"] == 0) host += row["peak_bytes"].get<int64_t>();
  CHECK(host == 12 * 34752 / 3);
}

}  // namespace cli
