// How ranks communicate: --backend of train, compare and plan, and zerolab.ordered. Without GPUs:
// through a fake where NCCL runs.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

Json plan(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"plan", "--model", "tiny", "--ranks", "3", "--json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Finished finished = zerolab(arguments);
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  return Json::parse(finished.out);
}

int64_t peak(const Json& stage, const std::string& use) {
  for (const Json& row : stage["memory"])
    if (row["use"] == use) return row["predicted_peak_bytes"];
  return 0;
}

}  // namespace

TEST_CASE("NCCL without GPUs is refused with what to use instead, before anything runs",
          "[zerolab]") {
  for (const char* command : {"train", "compare"})
    for (const char* device : {"auto", "cpu"}) {
      const Finished refused = zerolab({command, "--model", "tiny", "--steps", "2", "--ranks", "2",
                                        "--device", device, "--backend", "nccl"});
      CAPTURE(command, device, refused.err);
      CHECK(refused.code == 2);
      CHECK(refused.out.empty());
      CHECK(refused.err.starts_with("zerolab: --backend nccl: "));
      CHECK(contains(refused.err, "use --backend threads, which runs the same stages"));
    }
  CHECK(contains(zerolab({"train", "--backend", "gloo"}).err,
                 "--backend: 'gloo' is none of auto, threads, nccl, mpi"));
}

TEST_CASE(
    "through NCCL compare keeps its promises to the byte, and demands no bits where NCCL adds as "
    "it likes",
    "[zerolab]") {
  const auto compare =
      [](const std::string& flags) {  // the program, with a fake where its NCCL was
        return shell(std::string(ZEROLAB_BINARY_ON_FAKE) +
                     " compare --model tiny --steps 2 --ranks 3 --device cpu --json -q " + flags);
      };
  const Finished ordered = compare("--backend nccl"),
                 free = compare("--backend nccl --set zerolab.ordered=false"),
                 threads = compare("");
  for (const Finished* run : {&ordered, &free, &threads}) {
    INFO(run->err);
    CHECK(run->code == 0);
  }
  const Json a = Json::parse(ordered.out), b = Json::parse(free.out), c = Json::parse(threads.out);
  CHECK((a["backend"] == "nccl" && b["backend"] == "nccl" && c["backend"] == "threads"));
  CHECK((a["bits_promised"] == true && b["bits_promised"] == false && c["bits_promised"] == true));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(a["stages"][i]["weights_hash"] == c["stages"][0]["weights_hash"]);
    CHECK(peak(a["stages"][i], "communication") > peak(b["stages"][i], "communication"));
    CHECK(peak(b["stages"][i], "communication") == peak(c["stages"][i], "communication"));
  }
  const Finished comm = shell(std::string(ZEROLAB_BINARY_ON_FAKE) +
                              " bench comm --backend nccl --device cpu --ranks 3 --collective "
                              "all_reduce,send_receive -f 1 -n 2 --json -q --unordered");
  const Json rates = Json::parse(comm.out);
  CHECK((rates["backend"] == "nccl" && rates["ordered"] == false && rates["ok"] == true &&
         rates["results"].size() == 2));
}

TEST_CASE("on the CPU auto means threads, with the same results", "[zerolab]") {
  const auto hash = [](const std::string& backend) {
    const Json json = Json::parse(
        zerolab({"compare", "--model", "tiny", "--steps", "1", "--ranks", "2", "--stages", "ddp",
                 "--json", "-q", "--device", "cpu", "--backend", backend})
            .out);
    CHECK(json["backend"] == "threads");
    CHECK(json["bits_promised"] == true);
    return json["stages"][0]["weights_hash"];
  };
  CHECK(hash("auto") == hash("threads"));
}

TEST_CASE("plan --backend nccl adds the scratch of sums in rank order, and changes nothing else",
          "[zerolab]") {
  const Json threads = plan({"--as", "cuda"}), nccl = plan({"--backend", "nccl"}),
             free = plan({"--backend", "nccl", "--set", "zerolab.ordered=false"});
  CHECK(threads["backend"] == "threads");
  CHECK(nccl["backend"] == "nccl");
  CHECK(nccl["as"] == "cuda");
  // Root is the largest unit: (256 + 32) · 32 elements and a norm of 64, padded to a multiple
  // of 48.
  const int64_t scratch = (9280 + 47) / 48 * 48 / 3 * 2 * 4;
  for (size_t i = 0; i < 4; ++i) {
    CAPTURE(threads["stages"][i]["stage"]);
    CHECK(peak(threads["stages"][i], "communication") == 3 * 8);
    CHECK(peak(free["stages"][i], "communication") == 3 * 8);
    CHECK(peak(nccl["stages"][i], "communication") >= scratch);
    for (const char* use : {"parameter", "gradient", "optimizer_state", "activation", "workspace"})
      CHECK(peak(nccl["stages"][i], use) == peak(threads["stages"][i], use));
    CHECK(nccl["stages"][i]["communication"] == threads["stages"][i]["communication"]);
    CHECK(free["stages"][i]["predicted_peak_total_bytes"] ==
          threads["stages"][i]["predicted_peak_total_bytes"]);
  }
  CHECK(contains(zerolab({"plan", "--model", "tiny", "--backend", "nccl"}).out,
                 "as on GPUs with NCCL"));
}

TEST_CASE("plan refuses NCCL on a CPU, and beside a closed formula that it does not change",
          "[zerolab]") {
  const Finished cpu = zerolab({"plan", "--as", "cpu", "--backend", "nccl"});
  CHECK(cpu.code == 2);
  CHECK(contains(cpu.err, "--as cpu contradicts it"));
  CHECK(zerolab({"plan", "--parameters", "1e9", "--backend", "nccl"}).code == 2);
  CHECK(zerolab({"plan", "--parameters", "1e9", "--backend", "threads"}).code == 0);
}

TEST_CASE("zerolab.ordered is noted, and changes nothing among threads", "[zerolab]") {
  const auto train = [](const std::string& ordered) {
    return zerolab({"train", "--model", "tiny", "--steps", "2", "--ranks", "3", "--sample", "0",
                    "--json", "--set", "zerolab.ordered=" + ordered});
  };
  const Finished free = train("false"), ordered = train("true");
  CHECK(contains(free.err, "note: false lets NCCL or MPI choose the order"));
  CHECK_FALSE(contains(ordered.err, "NCCL"));
  CHECK(Json::parse(free.out)["loss"] == Json::parse(ordered.out)["loss"]);
}

}  // namespace cli
