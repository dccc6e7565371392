// compare: documents, exit codes, files, presets of real systems.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kText = "compare --model tiny --steps 2 --ranks 3 -q ";

std::set<std::string> key_set(const Json& object) {
  std::set<std::string> all;
  for (const auto& [key, value] : object.items()) all.insert(key);
  return all;
}
std::set<std::string> set_of(const std::string& line) {
  const Words all = words(line);
  return {all.begin(), all.end()};
}

template <class Value>
int64_t sum(const Json& rows, const char* key, const Value& counts) {
  int64_t all = 0;
  for (const Json& row : rows)
    if (counts(row)) all += row[key].template get<int64_t>();
  return all;
}
const auto kAny = [](const Json&) { return true; };

}  // namespace

TEST_CASE("compare --json has the documented keys, and measurements equal predictions",
          "[zerolab]") {
  const Json json = Json::parse(document(kText));
  CHECK(key_set(json) == set_of("schema command ok ranks parameters steps precision device backend "
                                "bits_promised model data settings stages threads"));
  CHECK(json["ok"] == true);
  REQUIRE(json["stages"].size() == 4);
  for (const Json& stage : json["stages"]) {
    CHECK(key_set(stage) ==
          set_of("stage loss grad_norm weights_hash bitwise_equal_to_ddp max_abs_difference_to_ddp "
                 "promised_equal_to bitwise_equal memory peak_total_bytes "
                 "predicted_peak_total_bytes init_peak_total_bytes communication seconds_per_step "
                 "communication_time"));
    CHECK(stage["loss"].size() == 2);
    CHECK(stage["weights_hash"].get<std::string>().size() == 16);
    CHECK(stage["weights_hash"] == json["stages"][0]["weights_hash"]);
    CHECK(stage["peak_total_bytes"] == stage["predicted_peak_total_bytes"]);
    for (const Json& row : stage["memory"]) {
      CHECK(row["rest_bytes"] == row["predicted_rest_bytes"]);
      CHECK(row["peak_bytes"] == row["predicted_peak_bytes"]);
    }
    for (const Json& row : stage["communication"])
      CHECK(row["sent_bytes_per_rank"] == row["predicted_sent_bytes_per_rank"]);
  }
}

TEST_CASE("compare on a simulated link has the bits of one without, and says what is exposed",
          "[zerolab]") {
  const std::string link = "--link-latency 1ms --link-bandwidth 1GB/s ",
                    row = "hidden behind computation";
  const Json free = Json::parse(document(kText)), slow = Json::parse(document(kText + link));
  CHECK(slow["ok"] == true);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(slow["stages"][i]["weights_hash"] == free["stages"][i]["weights_hash"]);
    const int64_t calls = sum(slow["stages"][i]["communication"], "calls", kAny);
    REQUIRE(slow["stages"][i]["communication_time"].size() == 3);
    for (const Json& rank : slow["stages"][i]["communication_time"]) {
      CHECK(rank["seconds"] >= double(calls) * 1e-3);
      CHECK(rank["exposed_seconds"] > 0);
    }
    for (const Json& rank : free["stages"][i]["communication_time"])
      CHECK(rank["hidden_seconds"] == 0);
  }
  const Finished told = call("compare --model tiny --steps 2 --ranks 3 " + link);
  CHECK(contains(told.out, row));
  CHECK(contains(told.err, "link    simulated: 1000 MB/s for each rank, 1000 us per call"));
  CHECK_FALSE(contains(call(kText).out, row));  // nothing is in flight
}

TEST_CASE("compare --out leaves three complete files or none, and prints its result on a full disk",
          "[zerolab]") {
  const ScratchFolder folder;
  CHECK(call(kText + "--out " + (folder / "a")).code == 0);
  CHECK(files_in(folder / "a") == words("compare.json report.html report.json"));
  CHECK(Json::parse(read_file(folder / "a/compare.json"))["command"] == "compare");
  CHECK(contains(read_file(folder / "a/report.html"), "compare --model tiny --steps 2"));
  const Finished full = shell(
      "ulimit -f 1; $ZEROLAB compare --model tiny --steps 2 --ranks 1 -q --out " + (folder / "b"));
  CHECK(full.code == 74);
  CHECK(contains(full.out,
                 "All results are bitwise equal where that is promised"));  // the result is printed
  CHECK(contains(full.err, "cannot be written"));
  CHECK_FALSE(std::filesystem::exists(folder / "b"));
}

TEST_CASE("compare.json describes the run: seed, sizes, batch, data and version", "[zerolab]") {
  const Json json = Json::parse(document(kText + "--stages ddp"));
  const Json &settings = json["settings"], &model = json["model"];
  CHECK((settings["seed"] == 1337 && settings["version"] == "0.2.0"));
  CHECK((model["n_layer"] == 2 && model["vocab_size"] == 256));
  CHECK((settings["micro_batch"] == 4 && settings["accumulation"] == 1));
  CHECK((settings["reduce_bucket_size"] == 1 && settings["allgather_bucket_size"] == 1));
  CHECK(json["data"]["window"] == 32);
  const std::string hash = json["data"]["hash"];
  CHECK(hash.size() == 16);
  CHECK(hash == Json::parse(document(kText + "--stages zero1 --seed 2"))["data"]["hash"]);
  CHECK(hash != Json::parse(document(kText + "--stages ddp --shuffle"))["data"]["hash"]);
}

TEST_CASE("--baseline passes for the same results and names the first one that differs",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string run = kText + "--stages zero2 ", file = folder / "baseline.json";
  const Json stored = Json::parse(document(run));
  const auto against = [&](const Json& baseline, const std::string& flags) {
    write_file(file, baseline.dump());
    return call(run + "--baseline " + file + flags);
  };
  const Finished same = against(stored, " --json");
  CHECK(same.code == 0);
  CHECK(Json::parse(same.out)["baseline"]["equal"] == true);

  Json fewer = stored;
  fewer["stages"].erase(1);
  const auto with = [&](const char* pointer, const Json& value) {
    Json changed = stored;
    changed[Json::json_pointer(pointer)] = value;
    return changed;
  };
  const Json loss = with("/stages/1/loss/1", 5.0);
  const std::pair<Json, std::string> table[] = {
      {loss, "zero2: loss: step 2: 5.0 in the baseline, "},
      {with("/stages/1/memory/0/peak_bytes", 7), "peak_bytes: 7 in the baseline, "},
      {with("/stages/0/communication/0/calls", 99), "calls: 99 in the baseline, "},
      {with("/stages/0/weights_hash", "0000000000000000"), "ddp: weights_hash: "},
      {fewer, "zero2 is not in the baseline"}};
  for (const auto& [baseline, text] : table) {
    const Finished different = against(baseline, " --json");
    CAPTURE(text);
    CHECK(different.code == 1);
    const Json json = Json::parse(different.out);
    CHECK(json["ok"] == false);
    CHECK(contains(json["baseline"]["first_difference"], text));
  }
  const Finished text = against(loss, "");
  CHECK(text.code == 1);
  CHECK(contains(text.out, "DIFFERENT from " + file + ": zero2: loss: step 2"));
}

TEST_CASE("compare prints times without exponents, and says where ranks take turns", "[zerolab]") {
  const Finished finished = call("compare --model tiny --steps 5 --ranks 3 -q");
  REQUIRE(finished.code == 0);
  const Words steps = starting(finished.out, "  ms per step (median) ");
  REQUIRE(steps.size() == 1);
  CHECK(words(steps[0]).size() == 8);  // four words of the title, four stages
  CHECK_FALSE(contains(steps[0], "e+"));
  check_says(call("compare --model tiny --steps 1 --ranks 64 --stages ddp").out,
             {"Times say little here: 64 ranks take turns on "});
}

TEST_CASE("what did not run is not said to be equal or timed", "[zerolab]") {
  const Finished some = call("compare --device-memory 20MiB --steps 1 --stages zero1,zero2 -q");
  CHECK(some.code == 0);
  check_says(some.out, {"ddp does not fit", "zero1 does not fit",
                        "All memory and traffic is as predicted, to the byte. Bits were not "
                        "compared: no two of the stages that fit promise the same.\n"});
  CHECK_FALSE(contains(some.out, "bitwise equal"));
  CHECK(count(some.out, "loss, step 1") == 1);
  const Finished two = call("compare --model tiny --steps 1 --stages zero3_qgz,zero3_qwz -q");
  CHECK(contains(starting(two.out, "  |gathered weight - shard's|").at(0), " no bound "));
  const Finished none = call("compare --model tiny --ranks 64 --steps 1 --device-memory 1KiB -q");
  CHECK(none.code == 3);
  check_says(none.out, {"No stage fits"});
  CHECK_FALSE(contains(none.out, "Times say little"));
}

TEST_CASE("a comparison of losses or weights that are not finite is no success", "[zerolab]") {
  const std::string tiny = "--model tiny -q --precision bf16 ",
                    wild = tiny +
                           "--set bf16.check_grad_overflow=false --set "
                           "optimizer.params.lr=1e38 --steps 3 ";
  const Finished three = call("compare --ranks 2 " + wild);
  CHECK(three.code == 1);
  CHECK(contains(three.out, "CHECK FAILED: ddp's loss is not finite in step 2"));
  CHECK_FALSE(contains(three.out, "All results are bitwise equal"));
  CHECK(contains(call("compare --ranks 2 --json " + wild).out, "\"ok\": false"));
  CHECK(call("compare --ranks 2 --steps 2 " + tiny).code == 0);  // the twin
}

TEST_CASE("in reproducible mode all stages and numbers of ranks have the same hash", "[zerolab]") {
  std::set<std::string> hashes;
  const auto compare = [&](const std::string& flags) {
    const Json json = Json::parse(
        document("compare --reproducible --model tiny -q --steps 2 --stages zero1,zero3 " + flags));
    for (const Json& stage : json["stages"])
      hashes.insert(stage["weights_hash"].get<std::string>());
  };
  for (const char* ranks : {"1", "2", "3"})
    compare(std::string("--ranks ") + ranks +
            " --set gradient_accumulation_steps=" + std::to_string(6 / (ranks[0] - '0')));
  CHECK(hashes.size() == 1);
  compare("--ranks 2 --set gradient_accumulation_steps=3 --seed 1");
  CHECK(hashes.size() == 2);
}

TEST_CASE("compare and plan predict systems beside the stages", "[zerolab]") {
  const std::string bucket = "--ranks 2 --set zero_optimization.reduce_bucket_size=20000 ",
                    tiny = "compare --model tiny --steps 1 --json --stages zero1 " + bucket;
  const Json json = Json::parse(document(tiny + "--set zerolab.as=deepspeed-1"));
  REQUIRE((json["stages"].size() == 2 && json["presets"].size() == 1));
  CHECK(json["presets"][0]["preset"] == "deepspeed-1");
  CHECK(json["presets"][0]["predicted"] == true);
  CHECK_FALSE(Json::parse(document(tiny)).contains("presets"));
  const Finished text =
      call("compare --model tiny --steps 1 --set zerolab.as=deepspeed-1 " + bucket);
  check_says(text.out, {"predicted, not run", "deepspeed-1 sends (N-1)/N (2c + e) Ψ where zero1",
                        "Left out: ", "All results are bitwise equal where that is promised"});
  const Finished plan = call("plan --model tiny --stages zero3,deepspeed-3,torch-ddp " + bucket);
  check_says(plan.out, {"predicted, not run", "deepspeed-3 sends", "torch-ddp"});
}

}  // namespace cli
