// compare and plan: documents, exit codes, files, the baseline.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

std::set<std::string> keys(const Json& object) {
  std::set<std::string> all;
  for (const auto& [key, value] : object.items()) all.insert(key);
  return all;
}

const std::vector<std::string> kSmall = {"compare", "--model", "tiny",   "--steps", "2",
                                         "--ranks", "3",       "--json", "-q"};

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("compare --json has the documented keys, and measurements equal predictions",
          "[zerolab]") {
  const Finished finished = zerolab(kSmall);
  REQUIRE(finished.code == 0);
  CHECK(finished.err.empty());
  const Json json = Json::parse(finished.out);
  CHECK(keys(json) == std::set<std::string>{"schema", "command", "ok", "ranks", "parameters",
                                            "steps", "precision", "device", "backend",
                                            "bits_promised", "model", "data", "settings", "stages",
                                            "threads"});
  CHECK(json["ok"] == true);
  REQUIRE(json["stages"].size() == 4);
  for (const Json& stage : json["stages"]) {
    CHECK(keys(stage) == std::set<std::string>{"stage", "loss", "grad_norm", "weights_hash",
                                               "bitwise_equal_to_ddp", "max_abs_difference_to_ddp",
                                               "promised_equal_to", "bitwise_equal", "memory",
                                               "peak_total_bytes", "predicted_peak_total_bytes",
                                               "init_peak_total_bytes", "communication",
                                               "seconds_per_step", "communication_time"});
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
  const std::vector<std::string> link = {"--link-latency", "1ms", "--link-bandwidth", "1GB/s"};
  const Json free = Json::parse(zerolab(kSmall).out),
             slow = Json::parse(zerolab(with(kSmall, link)).out);
  CHECK(slow["ok"] == true);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(slow["stages"][i]["weights_hash"] == free["stages"][i]["weights_hash"]);
    int64_t calls = 0;
    for (const Json& row : slow["stages"][i]["communication"]) calls += row["calls"].get<int64_t>();
    REQUIRE(slow["stages"][i]["communication_time"].size() == 3);
    for (const Json& rank : slow["stages"][i]["communication_time"]) {
      CHECK(rank["seconds"] >= double(calls) * 1e-3);
      CHECK(rank["exposed_seconds"] > 0);
    }
    for (const Json& rank : free["stages"][i]["communication_time"])
      CHECK(rank["hidden_seconds"] == 0);
  }
  std::vector<std::string> text = kSmall;
  std::erase(text, "--json");
  const char* row = "hidden behind computation";
  CHECK(contains(zerolab(with(text, link)).out, row));
  CHECK_FALSE(contains(zerolab(text).out, row));  // nothing is in flight
  std::erase(text, "-q");
  CHECK(contains(zerolab(with(text, link)).err,
                 "link    simulated: 1000 MB/s for each rank, 1000 us per call"));
}

TEST_CASE("compare draws bars whose lengths are the document's bytes, in at most 80 columns",
          "[zerolab]") {
  std::vector<std::string> text = kSmall;
  std::erase(text, "--json");
  const Json json = Json::parse(zerolab(kSmall).out);
  const std::string plain = zerolab(text).out;
  std::vector<std::string> kept, peak, sent;  // the lines of each group
  std::vector<std::string>* group = nullptr;
  for (const std::string& line : lines(plain)) {
    if (line.starts_with("  kept  ")) group = &kept;
    if (line.starts_with("  peak  ")) group = &peak;
    if (line.starts_with("  sent  ")) group = &sent;
    if (line.starts_with("  P parameter")) group = nullptr;
    if (!group) continue;
    CHECK(line.size() <= 80);
    group->push_back(line);
  }
  const auto letters = [](const std::string& line) {
    return int64_t(line.find_last_not_of(' ', 65) - 15 + 1);
  };
  const auto check = [&](const std::vector<std::string>& drawn, const auto& bytes_of) {
    REQUIRE(drawn.size() == 4);
    int64_t most = 0;
    for (const Json& stage : json["stages"]) most = std::max<int64_t>(most, bytes_of(stage));
    for (size_t i = 0; i < 4; ++i) {
      CAPTURE(drawn[i]);
      CHECK(drawn[i].substr(8, 5).starts_with(json["stages"][i]["stage"].get<std::string>()));
      CHECK(letters(drawn[i]) == (bytes_of(json["stages"][i]) * 50 + most / 2) / most);
    }
    CHECK(letters(drawn[0]) != letters(drawn[3]));
  };
  check(kept, [](const Json& stage) {
    int64_t bytes = 0;
    for (const Json& row : stage["memory"])
      if (row["rank"] == 0 && row["pool"] == "device") bytes += row["rest_bytes"].get<int64_t>();
    return bytes;
  });
  check(peak, [](const Json& stage) { return stage["peak_total_bytes"][0].get<int64_t>(); });
  check(sent, [](const Json& stage) {
    int64_t bytes = 0;
    for (const Json& row : stage["communication"])
      bytes += row["sent_bytes_per_rank"].get<int64_t>();
    return bytes;
  });
  CHECK_FALSE(contains(plain, "\x1b"));
  const std::string colored = zerolab(with(text, {"--color", "always"})).out;
  CHECK(contains(colored, "\x1b[34mPPP"));
  const auto bars = [](const std::string& out) {
    const std::string all = std::regex_replace(out, std::regex("\x1b\\[[0-9;]*m"), "");
    return all.substr(all.find("  kept  "), all.find("  P parameter") - all.find("  kept  "));
  };
  CHECK(bars(colored) == bars(plain));
}

TEST_CASE("compare ends with 3 if no listed stage fits, even if ddp ran", "[zerolab]") {
  const std::vector<std::string> one = {"compare", "--model",  "tiny",  "--steps", "1", "--ranks",
                                        "1",       "--stages", "zero3", "--json",  "-q"};
  const Json plan = Json::parse(
      zerolab({"plan", "--model", "tiny", "--ranks", "1", "--stages", "zero3", "--json"}).out);
  const int64_t peak = plan["stages"][0]["predicted_peak_total_bytes"][0];
  const Finished tight = zerolab(with(one, {"--device-memory", std::to_string(peak - 1)}));
  CHECK(tight.code == 3);
  CHECK(Json::parse(tight.out)["stages"][1]["out_of_memory"]["asked"] > 0);
  CHECK(zerolab(with(one, {"--device-memory", std::to_string(peak)})).code == 0);
}

TEST_CASE("compare --out leaves three complete files or none, and prints its result on a full disk",
          "[zerolab]") {
  const ScratchFolder folder;
  CHECK(zerolab(with(kSmall, {"--out", folder / "a"})).code == 0);
  CHECK(files_in(folder / "a") ==
        std::vector<std::string>{"compare.json", "report.html", "report.json"});
  CHECK(Json::parse(read_file(folder / "a/compare.json"))["command"] == "compare");
  CHECK(contains(read_file(folder / "a/report.html"), "compare --model tiny --steps 2"));
  const Finished full = shell(
      "ulimit -f 1; $ZEROLAB compare --model tiny --steps 2 --ranks 1 -q --out " + (folder / "b"));
  CHECK(full.code == 74);
  CHECK(contains(full.out, "Every stage has the bits that it promises"));  // the result is printed
  CHECK(contains(full.err, "cannot be written"));
  CHECK_FALSE(std::filesystem::exists(folder / "b"));
}

TEST_CASE("compare --out refuses a folder that holds a comparison, and keeps it", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(zerolab(with(kSmall, {"--out", folder / "a"})).code == 0);
  const std::string before = read_file(folder / "a/compare.json");
  const Finished again = zerolab(with(kSmall, {"--seed", "2", "--out", folder / "a"}));
  CHECK(again.code == 2);
  CHECK(contains(again.err, "already holds a run (compare.json)"));
  CHECK(read_file(folder / "a/compare.json") == before);
}

TEST_CASE("compare.json describes the run: seed, sizes, batch, data and version", "[zerolab]") {
  const auto document = [](const std::vector<std::string>& flags) {
    return Json::parse(zerolab(with(kSmall, flags)).out);
  };
  const Json json = document({"--stages", "ddp"});
  const Json& settings = json["settings"];
  CHECK(settings["seed"] == 1337);
  CHECK(json["model"]["n_layer"] == 2);
  CHECK(json["model"]["vocab_size"] == 256);
  CHECK((settings["micro_batch"] == 4 && settings["accumulation"] == 1));
  CHECK((settings["reduce_bucket_size"] == 1 && settings["allgather_bucket_size"] == 1));
  CHECK(json["data"]["window"] == 32);
  CHECK(settings["version"] == "0.1.0");
  const std::string hash = json["data"]["hash"];
  CHECK(hash.size() == 16);
  CHECK(hash == document({"--stages", "zero1", "--seed", "2"})["data"]["hash"]);
  CHECK(hash != document({"--stages", "ddp", "--shuffle"})["data"]["hash"]);
}

TEST_CASE("--baseline passes for the same results and names the first one that differs",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::vector<std::string> run = with(kSmall, {"--stages", "zero2"});
  const Json stored = Json::parse(zerolab(run).out);
  const auto against = [&](const Json& baseline, const std::vector<std::string>& flags = {}) {
    const std::string file = write_file(folder / "baseline.json", baseline.dump());
    return zerolab(with(with(run, {"--baseline", file}), flags));
  };
  const Finished same = against(stored);
  CHECK(same.code == 0);
  CHECK(Json::parse(same.out)["baseline"]["equal"] == true);

  Json loss = stored, peak = stored, sent = stored, hash = stored, fewer = stored;
  loss["stages"][1]["loss"][1] = 5.0;
  peak["stages"][1]["memory"][0]["peak_bytes"] = 7;
  sent["stages"][0]["communication"][0]["calls"] = 99;
  hash["stages"][0]["weights_hash"] = "0000000000000000";
  fewer["stages"].erase(1);
  const std::pair<Json, std::string> table[] = {
      {loss, "zero2: loss, step 2: 5.0 in the baseline, "},
      {peak, "peak_bytes: 7 in the baseline, "},
      {sent, "calls: 99 in the baseline, "},
      {hash, "ddp: weights_hash: "},
      {fewer, "stages has 1 entries in the baseline and 2 now"}};
  for (const auto& [baseline, text] : table) {
    const Finished different = against(baseline);
    CAPTURE(text);
    CHECK(different.code == 1);
    const Json json = Json::parse(different.out);
    CHECK(json["ok"] == false);
    CHECK(contains(json["baseline"]["first_difference"], text));
  }
  const Finished text =
      zerolab({"compare", "--model", "tiny", "--steps", "2", "--ranks", "3", "-q", "--stages",
               "zero2", "--baseline", write_file(folder / "b.json", loss.dump())});
  CHECK(text.code == 1);
  CHECK(contains(text.out, "DIFFERENT from " + (folder / "b.json") + ": zero2: loss, step 2"));
}

TEST_CASE("--baseline refuses another run's settings and files that are no comparison",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::vector<std::string> run = with(kSmall, {"--stages", "ddp"});
  const std::string file = write_file(folder / "b.json", zerolab(run).out);
  const Finished seed = zerolab(with(run, {"--baseline", file, "--seed", "7"}));
  CHECK(seed.code == 2);
  CHECK(contains(seed.err, "is of another run: settings: seed: 1337 in the baseline, 7 now"));
  for (const auto& [flags, difference] :
       {std::pair{std::vector<std::string>{"--set", "optimizer.params.lr=0.5"},
                  "optimizer.params.lr: 0.001 in the baseline, 0.5 now"},
        {{"--set", "zerolab.recompute=true"},
         "zerolab.recompute: \"selective\" in the baseline, \"full\" now"},
        {{"--threads", "2"}, "threads: 1 in the baseline, 2 now"},
        {{"--stages", "ddp,zero1"}, "stages has 1 entries in the baseline and 2 now"}}) {
    std::vector<std::string> other = with(kSmall, flags);
    if (flags[0] != "--stages") other = with(run, flags);
    const Finished refused = zerolab(with(other, {"--baseline", file}));
    CAPTURE(refused.err);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, difference));
  }
  for (const auto& [text, problem] :
       {std::pair{"no JSON", "is not valid JSON: error at byte"},
        {"{\"command\": \"plan\"}", "is not a compare.json of 'zerolab compare --out'"},
        {"[]", "is not a compare.json of 'zerolab compare --out'"},
        {"{\"command\": \"compare\", \"schema\": 99}", "has another schema than 1"},
        {"{\"command\": \"compare\", \"schema\": 1}", "lacks 'ranks', or it is no number"}}) {
    const std::string wrong = write_file(folder / "wrong.json", text);
    const Finished refused = zerolab(with(run, {"--baseline", wrong}));
    CAPTURE(refused.err);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, problem));
  }
  CHECK(contains(zerolab(with(run, {"--baseline", folder / "."})).err, "is a folder"));
  CHECK(zerolab(with(run, {"--baseline", folder / "none.json"})).code == 2);
}

TEST_CASE("compare prints times without exponents, and no rank waits longer than a step",
          "[zerolab]") {
  const Finished finished =
      zerolab({"compare", "--model", "tiny", "--steps", "5", "--ranks", "3", "-q"});
  REQUIRE(finished.code == 0);
  const auto row = [&](const std::string& title) {
    for (const std::string& line : lines(finished.out))
      if (contains(line, title)) return line;
    return std::string();
  };
  const std::string steps = row("ms per step"), waiting = row("spent waiting");
  CHECK_FALSE(contains(steps + waiting, "e+"));
  const std::regex number("[ (]([0-9.]+)(?= |$)");
  std::vector<double> step;
  for (std::sregex_iterator i(steps.begin(), steps.end(), number), end; i != end; ++i)
    step.push_back(std::stod((*i)[1]));
  const std::regex range("([0-9.]+) \\([0-9]+\\) to ([0-9.]+) \\([0-9]+\\)");
  std::vector<double> most;
  for (std::sregex_iterator i(waiting.begin(), waiting.end(), range), end; i != end; ++i)
    most.push_back(std::stod((*i)[2]));
  REQUIRE((step.size() == 4 && most.size() == 4));
  for (size_t i = 0; i < 4; ++i) CHECK(most[i] <= step[i]);
  const Finished crowded =
      zerolab({"compare", "--model", "tiny", "--steps", "1", "--ranks", "64", "--stages", "ddp"});
  CHECK(contains(crowded.out, "Times say little here: 64 ranks take turns on "));
}

TEST_CASE("a stream that came closed does not become a file of the run", "[zerolab]") {
  const ScratchFolder folder;
  CHECK(
      shell("$ZEROLAB train --model tiny --steps 3 --sample 0 --out " + (folder / "run") + " 2>&-")
          .code == 0);
  for (const std::string& line : lines(read_file(folder / "run/metrics.jsonl")))
    CHECK_NOTHROW(Json::parse(line));
}

TEST_CASE("plan says what fits in text and exit code, and refuses what it cannot count",
          "[zerolab]") {
  const Finished open = zerolab({"plan", "--model", "gpt2", "--ranks", "8"});
  CHECK(open.code == 0);
  CHECK(contains(open.out, "124,439,808 parameters"));
  CHECK(contains(open.out, "To see which stages fit, give --device-memory SIZE"));
  const Finished fits =
      zerolab({"plan", "--model", "gpt2", "--ranks", "8", "--device-memory", "5GiB"});
  CHECK(fits.code == 0);
  CHECK(contains(fits.out, "Take "));
  CHECK(zerolab({"plan", "--model", "gpt2", "--device-memory", "1MiB"}).code == 3);
  CHECK(zerolab({"plan", "--n-embd", "1e9", "--n-layer", "3", "--ranks", "1e6"}).code == 2);
  CHECK(zerolab({"plan", "--n-embd", "1e6", "--n-layer", "4", "--ranks", "1e6"}).code == 2);
  CHECK(contains(
      zerolab({"plan", "--parameters", "7.5e9", "--ranks", "64", "--precision", "bf16"}).out,
      "1.875 GB"));
}

TEST_CASE("a comparison of losses or weights that are not finite is no success", "[zerolab]") {
  const std::vector<std::string> run = {"compare", "--model", "tiny", "--ranks", "2", "-q"};
  const auto compare = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more.begin(), more.end());
    return zerolab(all);
  };
  const std::vector<std::string> bf16 = {"--precision", "bf16",
                                         "--set",       "bf16.check_grad_overflow=false",
                                         "--set",       "optimizer.params.lr=1e38",
                                         "--steps"};
  const auto steps = [&](const char* n, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = bf16;
    all.push_back(n);
    all.insert(all.end(), more.begin(), more.end());
    return compare(all);
  };
  const Finished three = steps("3");
  INFO(three.out << three.err);
  CHECK(three.code == 1);
  CHECK(contains(three.out, "CHECK FAILED: ddp's loss is not finite in step 2"));
  CHECK_FALSE(contains(three.out, "Every stage has the bits"));
  CHECK(contains(steps("3", {"--json"}).out, "\"ok\": false"));
  std::vector<std::string> several = {"compare", "--model", "tiny", "--reproducible",
                                      "--ranks", "1,2",     "-q"};
  several.insert(several.end(), bf16.begin(), bf16.end());
  several.push_back("3");
  const Finished ranks = zerolab(several);
  CHECK(ranks.code == 1);
  CHECK(contains(ranks.out, "CHECK FAILED: ddp's loss is not finite"));
  CHECK(compare({"--steps", "2", "--precision", "bf16"}).code == 0);  // the twin
}

}  // namespace cli
