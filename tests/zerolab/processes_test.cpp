// The program as several processes with the fake NCCL: same results as with threads, output from
// rank 0 only, and one end for all.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/checkpoint_run.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFake = ZEROLAB_BINARY_ON_FAKE;
const std::string kTiny = " --model tiny --steps 3 --device cpu";

// `zerolab launch -n 3 -- COMMAND`, whose NCCL is the fake.
Finished launched(const std::string& command, const std::string& before = "") {
  return shell(before + kFake + " launch -n 3 -- " + command + kTiny);
}

// What is not of this run: times, and with NCCL the bytes of its scratch.
Json results(const std::string& text) {
  const Json document = Json::parse(text);
  Json stages = Json::array();
  for (const Json& stage : document["stages"])
    stages.push_back(
        {stage["loss"], stage["grad_norm"], stage["weights_hash"], stage["communication"]});
  return {document["ok"], document["ranks"], stages};
}

}  // namespace

TEST_CASE("compare on processes has the results of threads, in one document", "[zerolab]") {
  const Finished processes = launched("compare -q --json"),
                 threads = shell(kFake + " compare --ranks 3 -q --json" + kTiny);
  INFO(processes.err);
  REQUIRE(processes.code == 0);
  CHECK(results(processes.out) == results(threads.out));
  CHECK(processes.err == "");
  const Json other = results(launched("compare -q --json --seed 5").out);
  CHECK(other != results(threads.out));
}

TEST_CASE("train on processes writes the same files as threads, and only rank 0 prints",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string flags = " --stage zero3 --eval-every 3 --sample 4 --trace ";
  const Finished processes =
      launched("train --out " + (folder / "a") + flags + (folder / "a.json"));
  const Finished threads = shell(kFake + " train --ranks 3 --out " + (folder / "b") + flags +
                                 (folder / "b.json") + kTiny);
  INFO(processes.err);
  REQUIRE((processes.code == 0 && threads.code == 0));
  CHECK(files_in(folder.path()) == std::vector<std::string>{"a", "a.json", "b", "b.json"});
  CHECK(read_file(folder / "a/model.safetensors") == read_file(folder / "b/model.safetensors"));
  CHECK(lines(read_file(folder / "a/metrics.jsonl")).size() == 3);
  CHECK(contains(processes.err, "each is a process, started by zerolab launch"));
  CHECK_FALSE(contains(processes.err, "[rank 1]"));
  CHECK(Json::parse(read_file(folder / "a.json"))["traceEvents"].size() > 100);
}

TEST_CASE("the recorded step of processes has the events and cells of threads", "[zerolab]") {
  const ScratchFolder folder;
  const std::string flags = " --stages zero3 -q --out ";
  const Finished processes = launched("compare" + flags + (folder / "a"));
  REQUIRE(processes.code == 0);
  REQUIRE(
      shell(kFake + " compare --ranks 3 --backend nccl" + flags + (folder / "b") + kTiny).code ==
      0);
  const Json a = Json::parse(read_file(folder / "a/report.json")),
             b = Json::parse(read_file(folder / "b/report.json"));
  REQUIRE(a["recordings"][1]["rank"].size() == 3);
  const auto untimed = [](const Json& recording) {
    Json all{recording["events"], recording["texts"]};
    for (const Json& rank : recording["rank"]) all.push_back({rank["cells"], rank["memory"]});
    return all;
  };
  CHECK(untimed(a["recordings"][1]) == untimed(b["recordings"][1]));
  CHECK(untimed(a["recordings"][1]) != untimed(b["recordings"][0]));
}

TEST_CASE("what all ranks report reaches rank 0: comms_logger", "[zerolab]") {
  const Finished run = launched(
      "train -q --sample 0 --set comms_logger.enabled=true --set comms_logger.verbose=false");
  CHECK(run.code == 0);
  CHECK(contains(run.err, "all_reduce"));
  CHECK(contains(run.err, "straggler"));
}

TEST_CASE("a limit that one rank exceeds ends all with 3, and compare goes on to what fits",
          "[zerolab]") {
  const Finished train = launched("train --stage ddp --device-memory 512KiB");
  CHECK(train.code == 3);
  CHECK(contains(train.err, "rank 0"));
  const Finished compare = launched("compare -q --json --device-memory 1200KiB");
  INFO(compare.err);
  REQUIRE(compare.code == 0);
  const Json document = Json::parse(compare.out);
  CHECK(document["stages"][0].contains("out_of_memory"));
  CHECK(document["stages"][3].contains("weights_hash"));
}

TEST_CASE("processes that were started differently are refused with what differs", "[zerolab]") {
  const std::string ranks = "sh -c '" + kFake + " train -q --timeout 5 --seed $RANK" + kTiny + "'";
  const Finished run = shell(kFake + " launch -n 2 " + ranks);
  CHECK(run.code == 2);
  CHECK(contains(run.err,
                 "rank 1 was started with 'zerolab.seed=1', and rank 0 with 'zerolab.seed=0'"));
}

TEST_CASE("with --share-gpu several processes use one GPU, and have the bits of threads",
          "[zerolab]") {
  const std::string gpu = "ZEROLAB_EMULATED_GPUS=1 ", program = ZEROLAB_BINARY_ON_FAKE_GPUS,
                    command = " --device cuda --model tiny --steps 1 --timeout 40 --json";
  const auto compare = [&](const std::string& start, const std::string& more) {
    return shell(gpu + start + " compare --stages zero3,hsdp --replicas 2" + command + more, 120);
  };
  const Finished refused =
      shell(gpu + program + " launch -n 2 -- train --backend nccl -q" + command);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "ranks 0 and 1 both use GPU 0000:00:00.0 of "));
  CHECK(contains(refused.err, "or test NCCL with zerolab launch --share-gpu"));

  const Finished shared = compare(program + " launch -n 4 --share-gpu --", " --backend nccl"),
                 threads = compare(program, " --backend threads --ranks 4 -q");
  INFO(shared.err);
  REQUIRE((shared.code == 0 && threads.code == 0));
  CHECK(results(shared.out) == results(threads.out));
  CHECK(contains(shared.err, "device  cuda, a GPU on the CPU\n"));
  CHECK(contains(shared.err,
                 "started by zerolab launch. They share GPUs, which tests NCCL; times mean "
                 "nothing\n"));

  // Ranks of other launchers need the variable only.
  const std::string ranks = "for r in 0 1; do RANK=$r LOCAL_RANK=$r " + program +
                            " train -q --stage zero2" + command +
                            " & ids=\"$ids $!\"; done; "
                            "for i in $ids; do wait $i || exit; done";
  const auto started = [&](const std::string& variable) {
    return shell("export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29777 " +
                     variable + gpu + "; " + ranks,
                 120);
  };
  const Finished by_hand = started("ZEROLAB_SHARE_GPU=1 ");
  INFO(by_hand.err);
  CHECK(by_hand.code == 0);
  CHECK(started("").code == 2);
}

TEST_CASE("--share-gpu without a GPU is refused, also where the device is chosen by the program",
          "[zerolab]") {
  const Finished refused =
      shell(kFake + " launch -n 2 --share-gpu -- train -q --backend nccl --model tiny");
  CHECK(refused.code == 2);
  CHECK(contains(refused.err,
                 "zerolab: --share-gpu (ZEROLAB_SHARE_GPU=1) lets ranks on NCCL share a "
                 "GPU, but ranks compute on the CPU here; leave it out"));
}

TEST_CASE("processes whose files differ in content are refused with rank, file and checksums",
          "[zerolab]") {
  const ScratchFolder folder;
  // Seeds 1 and 2 give files of one size.
  const auto weights = [&](int seed) {
    const std::string out = folder / ("seed" + std::to_string(seed));
    REQUIRE(shell("$ZEROLAB train -q --ranks 1 --out " + out + " --seed " + std::to_string(seed) +
                  kTiny)
                .code == 0);
    return read_file(out + "/model.safetensors");
  };
  const std::vector<std::string> model{weights(1), weights(2)};
  REQUIRE(model[0].size() == model[1].size());
  std::string text, tokens;
  for (int i = 0; i < 400'000; ++i)
    text += char('a' + i % 23), tokens += text.back(), tokens += '\0';
  // A change neither at the beginning nor at the end.
  const auto changed = [](std::string bytes) { return bytes[200'000] = '!', bytes; };

  // Rank r runs in folder r of `where`, which has the files `files[r]`.
  const auto run = [&](const std::string& flags, const std::string& file,
                       const std::vector<std::string>& contents) {
    for (const int r : {0, 1}) {
      const std::filesystem::path path = folder / std::to_string(r) + "/" + file;
      std::filesystem::create_directories(path.parent_path());
      write_file(path, contents[size_t(r)]);
    }
    return shell("cd " + folder.path() + "; " + kFake + " launch -n 2 sh -c 'cd $RANK; " + kFake +
                 " train -q --timeout 20" + flags + kTiny + "'");
  };
  const auto same = [](const std::vector<std::string>& all) {
    return std::vector<std::string>{all[0], all[0]};
  };
  struct Input {
    std::string flags, file;
    std::vector<std::string> contents;
  };
  const std::string config = "{\"n_head\": 2, \"_name_or_path\": ";
  for (const Input& input :
       {Input{" --init-from w.safetensors", "w.safetensors", model},
        Input{" --init-from of", "of/model.safetensors", model},
        Input{" --init-from of", "of/config.json", {config + "\"a\"}", config + "\"b\"}"}},
        Input{" --data a.txt", "a.txt", {text, changed(text)}},
        Input{" --data b.bin", "b.bin", {tokens, changed(tokens)}},
        Input{" --data 'c*.txt'", "c1.txt", {text, changed(text)}}}) {
    INFO(input.flags << " " << input.file);
    if (input.file == "of/config.json") run(" --init-from of", "of/model.safetensors", same(model));
    const Finished differ = run(input.flags, input.file, input.contents),
                   equal = run(input.flags, input.file, same(input.contents));
    INFO(differ.err << equal.err);
    CHECK(differ.code == 2);
    const std::string bytes = ": " + std::to_string(input.contents[0].size()) + " bytes, CRC-32C ";
    CHECK(contains(differ.err, "rank 1 was started with '" + input.file + bytes));
    CHECK(contains(differ.err, ", and rank 0 with '" + input.file + bytes));
    CHECK(contains(differ.err, "start all ranks with the same settings and files"));
    CHECK(equal.code == 0);
  }
}

TEST_CASE("--ranks and --backend cannot contradict the launcher", "[zerolab]") {
  const std::string torchrun =
      "TORCHELASTIC_RUN_ID=job RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 "
      "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ";
  const Finished ranks = shell(torchrun + kFake + " train --ranks 4" + kTiny);
  CHECK(ranks.code == 2);
  CHECK(contains(ranks.err, "--ranks 4, but torchrun started 2 processes"));
  const Finished threads = shell(torchrun + kFake + " train --backend threads" + kTiny);
  CHECK(threads.code == 2);
  CHECK(contains(threads.err, "use --backend nccl"));
  const Finished alone = shell(torchrun + kFake + " train --timeout 0.5" + kTiny);
  CHECK(alone.code == 4);
  CHECK(contains(alone.err, "missing: rank 1"));
  const Finished without = shell(torchrun + "$ZEROLAB train" + kTiny);
  CHECK(without.code == 2);
  CHECK(contains(without.err, "ranks that are processes communicate by NCCL"));
  CHECK(contains(without.err, "--ranks 2, whose ranks are threads"));
}

TEST_CASE("NCCL's errors end all processes with 4 and advice", "[zerolab]") {
  const Finished run =
      launched("train -q --timeout 2", "ZEROLAB_FAKE_FAULT='ncclGroupEnd:never:rank=1:call=9' ");
  INFO(run.err);
  CHECK(run.code == 4);
  CHECK(contains(run.err, "rank 1"));
  CHECK(contains(run.err, "communication failed"));
}

TEST_CASE("Ctrl-C also ends a rank that is stopped, and one that ignores it", "[zerolab]") {
  for (const char* rank_1 : {"kill -STOP $$; exit 0", "trap \"\" INT; sleep 60 & wait; sleep 60"}) {
    const Finished run = shell(std::string("timeout --preserve-status -s INT 1 $ZEROLAB launch -n "
                                           "2 --grace 1 sh -c 'if [ $RANK = 1 ]; then ") +
                               rank_1 + "; fi; sleep 60'");
    CAPTURE(rank_1, run.err);
    CHECK(run.code == 130);
    CHECK_FALSE(run.timed_out);
  }
}

TEST_CASE("processes save a checkpoint on SIGTERM, and threads go on from it", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", flags =
                                              " train --model tiny --device cpu --sample 0 -q "
                                              "--stage zero2 --steps 200 --save-every 1000 ";
  const Finished ended =
      shell(kFake + " launch -n 2 --" + flags + "--out '" + out +
            "' & for i in $(seq 500); do test -s '" + out +
            "/metrics.jsonl' && break; sleep 0.02; done; kill -TERM $!; wait $!; echo $?");
  INFO(ended.err);
  CHECK(ended.out == "143\n");
  CHECK(contains(ended.err, "add --resume to go on from " + out + "/step-"));
  const auto saved = checkpoints_in(out);
  REQUIRE(saved.size() == 1);
  const Finished checked = zerolab({"checkpoint", "verify", out});
  CHECK(checked.out == out + "/" + saved[0] + ": ok\n");
  REQUIRE(shell(kFake + flags + "--ranks 2 --out '" + out + "' --resume").code == 0);
  REQUIRE(shell(kFake + flags + "--ranks 2 --out " + (folder / "whole")).code == 0);
  CHECK(weights_of(out) == weights_of(folder / "whole"));
  CHECK(metrics_of(out) == metrics_of(folder / "whole"));
  CHECK(weights_of(out) != weights_of(out + "/" + saved[0]));
}

}  // namespace cli
