// The program as several processes with the fake NCCL: same results as with threads, output from
// rank 0 only, and one end for all.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kFake = ZEROLAB_BINARY_ON_FAKE;
const std::string kTiny = " --model tiny --steps 3 --device cpu";

// `zerolab launch -n 3 -- COMMAND`, whose NCCL is the fake.
Finished launched(const std::string& command, const std::string& before = "") {
  return shell(before + kFake + " launch -n 3 -- " + command + kTiny);
}

// What is not of this run: times, and with NCCL the bytes of its scratch.
Json results(const Finished& finished) {
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const Json document = Json::parse(finished.out);
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
  CHECK(results(processes) == results(threads));
  CHECK(processes.err == "");
  CHECK(results(launched("compare -q --json --seed 5")) != results(threads));
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
  CHECK(files_in(folder.path()) == words("a a.json b b.json"));
  CHECK(weights_of(folder / "a") == weights_of(folder / "b"));
  CHECK(metrics_of(folder / "a").size() == 3);
  check_says(processes.err, {"each is a process, started by zerolab launch"});
  CHECK_FALSE(contains(processes.err, "[rank 1]"));
  std::set<int> ranks;  // what all ranks trace reaches rank 0
  const Json trace = Json::parse(read_file(folder / "a.json"));
  for (const Json& event : trace["traceEvents"]) ranks.insert(event["pid"].get<int>());
  CHECK(ranks.size() == 3);
  CHECK(trace["traceEvents"].size() > 100);
}

TEST_CASE("the recorded step of processes has the events and cells of threads", "[zerolab]") {
  const ScratchFolder folder;
  // Sums in rank order would take scratch memory.
  const std::string flags = " --stages zero3 -q --set zerolab.ordered=false --out ",
                    a = folder / "a", b = folder / "b";
  REQUIRE(launched("compare" + flags + a).code == 0);
  REQUIRE(shell(kFake + " compare --ranks 3" + flags + b + kTiny).code == 0);
  const Json processes = Json::parse(report_in(a))["recordings"],
             threads = Json::parse(report_in(b))["recordings"];
  REQUIRE(processes[1]["rank"].size() == 3);
  const auto untimed = [](const Json& recording) {
    Json events = recording["events"];
    std::sort(events.begin(), events.end());  // a call of NCCL ends when it is waited for
    Json all{events, recording["texts"]};
    for (const Json& rank : recording["rank"]) all.push_back({rank["cells"], rank["memory"]});
    return all;
  };
  CHECK(untimed(processes[1]) == untimed(threads[1]));
  CHECK(untimed(processes[1]) != untimed(threads[0]));
}

TEST_CASE("a limit that one rank exceeds ends all with 3, and compare goes on to what fits",
          "[zerolab]") {
  const Finished train = launched("train --stage ddp --device-memory 512KiB");
  CHECK(train.code == 3);
  CHECK(contains(train.err, "rank 0"));
  const Finished compare = launched("compare -q --json --device-memory 1200KiB");
  INFO(compare.err);
  REQUIRE(compare.code == 0);
  const Json stages = Json::parse(compare.out)["stages"];
  CHECK(stages[0].contains("out_of_memory"));
  CHECK(stages[3].contains("weights_hash"));
}

TEST_CASE("with --share-gpu several processes use one GPU, and have the bits of threads",
          "[zerolab]") {
  const std::string gpu = "ZEROLAB_EMULATED_GPUS=1 ", program = ZEROLAB_BINARY_ON_FAKE_GPUS,
                    command =
                        " --device cuda --model tiny --n-layer 1 --steps 1 --timeout 40 --json";
  const auto compare = [&](const std::string& start, const std::string& more) {
    return shell(gpu + start + " compare --stages zero3,hsdp --replicas 2" + command + more, 120);
  };
  const Finished refused =
      shell(gpu + program + " launch -n 2 -- train --backend nccl -q" + command);
  CHECK(refused.code == 2);
  check_says(refused.err, {"ranks 0 and 1 both use GPU 0000:00:00.0 of ",
                           "or test NCCL with zerolab launch --share-gpu"});

  const Finished shared = compare(program + " launch -n 4 --share-gpu --", " --backend nccl"),
                 threads = compare(program, " --backend threads --ranks 4 -q");
  CHECK(results(shared) == results(threads));
  check_says(shared.err, {"device  cuda, a GPU on the CPU\n",
                          "started by zerolab launch. They share GPUs, which tests NCCL; times "
                          "mean nothing\n"});
}

TEST_CASE("processes whose settings or files differ are refused with rank, file and checksums",
          "[zerolab]") {
  const Finished seeds = shell(kFake + " launch -n 2 sh -c '" + kFake +
                               " train -q --timeout 5 --seed $RANK" + kTiny + "'");
  CHECK(seeds.code == 2);
  check_says(seeds.err,
             {"rank 1 was started with 'zerolab.seed=1', and rank 0 with 'zerolab.seed=0'"});

  const ScratchFolder folder;
  // Seeds 1 and 2 give files of one size.
  const auto weights = [&](const std::string& seed) {
    REQUIRE(train(1, "--ranks 1 --out " + (folder / seed) + " --seed " + seed).code == 0);
    return weights_of(folder / seed);
  };
  const Words model{weights("1"), weights("2")};
  REQUIRE(model[0].size() == model[1].size());
  std::string text, tokens;
  for (int i = 0; i < 400'000; ++i)
    text += char('a' + i % 23), tokens += text.back(), tokens += '\0';
  // A change neither at the beginning nor at the end.
  const auto changed = [](std::string bytes) { return bytes[200'000] = '!', bytes; };

  // Rank r runs in folder r, which has the files `contents[r]`.
  const auto run = [&](const std::string& flags, const std::string& file, const Words& contents) {
    for (const int r : {0, 1}) {
      const std::filesystem::path path = folder / ("r" + std::to_string(r) + "/" + file);
      std::filesystem::create_directories(path.parent_path());
      write_file(path, contents[size_t(r)]);
    }
    return shell("cd " + folder.path() + "; " + kFake + " launch -n 2 sh -c 'cd r$RANK; " + kFake +
                 " train -q --timeout 20 " + flags + kTiny + "'");
  };
  struct Input {
    std::string flags, file;
    Words contents;
  };
  const std::string config = "{\"n_head\": 2, \"_name_or_path\": ";
  for (const Input& input :
       {Input{"--init-from w.safetensors", "w.safetensors", model},
        Input{"--init-from of", "of/model.safetensors", model},
        Input{"--init-from of", "of/config.json", {config + "\"a\"}", config + "\"b\"}"}},
        Input{"--data a.txt", "a.txt", {text, changed(text)}},
        Input{"--data b.bin", "b.bin", {tokens, changed(tokens)}},
        Input{"--data 'c*.txt'", "c1.txt", {text, changed(text)}}}) {
    INFO(input.flags << " " << input.file);
    const Finished differ = run(input.flags, input.file, input.contents),
                   equal = run(input.flags, input.file, {input.contents[0], input.contents[0]});
    INFO(differ.err << equal.err);
    CHECK(differ.code == 2);
    const std::string bytes = ": " + std::to_string(input.contents[0].size()) + " bytes, CRC-32C ";
    check_says(differ.err, {"rank 1 was started with '" + input.file + bytes,
                            ", and rank 0 with '" + input.file + bytes,
                            "start all ranks with the same settings and files"});
    CHECK(equal.code == 0);
  }
}

TEST_CASE("flags cannot contradict the launcher, and errors of ranks end all with advice",
          "[zerolab]") {
  const std::string torchrun =
      "TORCHELASTIC_RUN_ID=job RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 "
      "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ";
  const auto check = [](const std::string& line, int code,
                        std::initializer_list<std::string> said) {
    // The device is chosen by the program where --share-gpu is refused.
    const Finished run = shell(line + (contains(line, "share") ? " --model tiny" : kTiny));
    CAPTURE(line);
    CHECK(run.code == code);
    check_says(run.err, said);
  };
  check(torchrun + kFake + " train --ranks 4", 2, {"--ranks 4, but torchrun started 2 processes"});
  check(torchrun + kFake + " train --backend threads", 2, {"use --backend nccl"});
  check(torchrun + kFake + " train --timeout 0.5", 4, {"missing: rank 1"});
  check(torchrun + "$ZEROLAB train", 2,
        {"ranks that are processes communicate by NCCL", "--ranks 2, whose ranks are threads"});
  check(kFake + " launch -n 2 --share-gpu -- train -q --backend nccl", 2,
        {"zerolab: --share-gpu (ZEROLAB_SHARE_GPU=1) lets ranks on NCCL share a GPU, but ranks "
         "compute on the CPU here; leave it out"});
  check("ZEROLAB_FAKE_FAULT='ncclGroupEnd:never:rank=1:call=9' " + kFake +
            " launch -n 3 -- train -q --timeout 2",
        4, {"rank 1", "communication failed"});
}

TEST_CASE("processes save a checkpoint on SIGTERM, and threads go on from it", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", whole = folder / "whole",
                    flags =
                        " " + tiny_run(1000, "--device cpu -q --stage zero2 --save-every 100000 ");
  const Finished ended =
      shell(kFake + " launch -n 2 --" + flags + "--out '" + out +
            "' & for i in $(seq 500); do test -s '" + out +
            "/metrics.jsonl' && break; sleep 0.02; done; kill -TERM $!; wait $!; echo $?");
  INFO(ended.err);
  CHECK(ended.out == "143\n");
  CHECK(contains(ended.err, "add --resume to go on from " + out + "/step-"));
  const auto saved = checkpoints_in(out);
  REQUIRE(saved.size() == 1);
  CHECK(call("checkpoint verify " + out).out == out + "/" + saved[0] + ": ok\n");
  REQUIRE(shell(kFake + flags + "--ranks 2 --out '" + out + "' --resume").code == 0);
  REQUIRE(shell(kFake + flags + "--ranks 2 --out " + whole).code == 0);
  CHECK(weights_of(out) == weights_of(whole));
  CHECK(metrics_of(out) == metrics_of(whole));
  CHECK(weights_of(out) != weights_of(out + "/" + saved[0]));
}

}  // namespace cli
