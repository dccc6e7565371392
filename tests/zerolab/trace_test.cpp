// --trace and --memory-snapshot: a complete file at the end, or a refusal at the beginning.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/dist/trace/unpickle.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

Finished train(const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"train", "--model", "tiny",  "--steps",  "2", "--ranks",
                                        "3",     "--stage", "zero2", "--sample", "0"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return zerolab(arguments);
}

}  // namespace

TEST_CASE("train --trace writes the timeline of all ranks and says what opens it", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = folder / "run.json";
  const Finished finished = train({"--trace", path});
  CHECK(finished.code == 0);
  CHECK(contains(finished.err, "trace: " + path + ", for ui.perfetto.dev or chrome://tracing"));
  CHECK_FALSE(contains(finished.err, "ends before the run"));
  CHECK(files_in(folder.path()) == std::vector<std::string>{"run.json"});
  const auto json = nlohmann::json::parse(read_file(path));
  CHECK(json["otherData"]["ranks"] == 3);
  std::set<int> ranks;
  for (const auto& event : json["traceEvents"])
    if (event["ph"] == "X") ranks.insert(event["pid"].get<int>());
  CHECK(ranks == std::set{0, 1, 2});
  const Finished quiet = train({"--trace", folder / "other.json", "-q"});
  CHECK(quiet.code == 0);
  CHECK(quiet.err.empty());
}

// tiny on 3 ranks in chunks of 2,048: 114,688 bytes, by hand in tests/stages/offload/nvme_test.cpp.
TEST_CASE("a trace of a run on disk has the disk's bytes, reads and writes", "[zerolab][moves]") {
  const ScratchFolder folder;
  const auto counters = [&](const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"-q", "--trace", folder / file};
    flags.insert(flags.end(), more.begin(), more.end());
    REQUIRE(train(flags).code == 0);
    std::map<std::string, nlohmann::json> last;  // of rank 1
    const auto json = nlohmann::json::parse(read_file(folder / file));
    for (const auto& event : json["traceEvents"])
      if (event["ph"] == "C" && event["pid"] == 1) last[event["name"]] = event["args"];
    return last;
  };
  auto disk = counters("disk.json", {"--offload", "nvme", "--nvme-path", folder.path(), "--set",
                                     "zero_optimization.sub_group_size=2048"});
  CHECK(disk["disk memory"] == nlohmann::json{{"optimizer_state", 114'688}});
  CHECK(disk["moved"]["disk read"] == 2 * 114'688);  // two steps
  CHECK(disk["moved"]["disk write"] == 2 * 114'688);
  CHECK_FALSE(counters("host.json", {"--offload", "cpu"}).contains("disk memory"));
}

TEST_CASE("--memory-snapshot writes the memory of all ranks, beside a trace or alone",
          "[zerolab]") {
  const ScratchFolder folder;
  const Finished both =
      train({"--json", "--trace", folder / "a.json", "--memory-snapshot", folder / "a.pickle"});
  REQUIRE(both.code == 0);
  CHECK(contains(both.err,
                 "memory snapshot: " + (folder / "a.pickle") + ", for pytorch.org/memory_viz\n"));
  const auto shot = nlohmann::json::parse(zl::test::unpickled_json(read_file(folder / "a.pickle")));
  REQUIRE(shot["device_traces"].size() == 3);
  const auto peaks = nlohmann::json::parse(both.out)["peak_total_bytes"];
  for (size_t rank = 0; rank < 3; ++rank) {
    int64_t live = 0, most = 0;  // the rise of the actions from their lowest point
    int64_t at_end = 0;
    for (const auto& segment : shot["segments"])
      if (segment["device"] == rank) at_end += segment["allocated_size"].get<int64_t>();
    for (const auto& a : shot["device_traces"][rank]) {
      const int64_t size = a["size"];
      live += a["action"] == "alloc" ? size : a["action"] == "free_completed" ? -size : 0;
      most = std::max(most, live);
    }
    CHECK(at_end - live + most == peaks[rank].get<int64_t>());
    CHECK(most > 0);
  }
  CHECK(train({"-q", "--memory-snapshot", folder / "b.pickle"}).code == 0);
  CHECK(files_in(folder.path()) == std::vector<std::string>{"a.json", "a.pickle", "b.pickle"});
  const Finished compared =
      zerolab({"compare", "--model", "tiny", "--steps", "1", "--ranks", "2", "--stages", "zero2",
               "--memory-snapshot", folder / "c.pickle"});
  CHECK(compared.code == 0);
  CHECK(files_in(folder.path()) == std::vector<std::string>{"a.json", "a.pickle", "b.pickle",
                                                            "c-ddp.pickle", "c-zero2.pickle"});
  CHECK(read_file(folder / "c-ddp.pickle") != read_file(folder / "c-zero2.pickle"));
}

TEST_CASE("--memory-snapshot replaces no file, and is not the trace", "[zerolab]") {
  const ScratchFolder folder;
  const std::string taken = write_file(folder / "taken", "mine");
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& text) {
    const Finished finished = train(flags);
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(contains(finished.err, text));
  };
  refused({"--memory-snapshot", taken}, "--memory-snapshot: '" + taken + "' exists");
  refused({"--memory-snapshot", folder / "x", "--trace", folder / "./x"}, "name the same file");
  const Finished relative = shell("cd " + folder.path() +
                                  " && $ZEROLAB train --model tiny --steps 1 --sample 0 -q"
                                  " --memory-snapshot m.p --trace ./m.p");
  CHECK(relative.code == 2);
  CHECK(contains(relative.err, "name the same file"));
  refused({"--memory-snapshot", folder / "o/metrics.jsonl", "--out", folder / "o"},
          "is, or is inside, a file or folder of --out");
  CHECK(read_file(taken) == "mine");
  CHECK(files_in(folder.path()) == std::vector<std::string>{"taken"});
  const Finished several = zerolab({"compare", "--model", "tiny", "--reproducible", "--ranks",
                                    "1,2", "--memory-snapshot", folder / "x"});
  CHECK(several.code == 2);
}

TEST_CASE("--trace replaces no file: not the run's data, weights, configuration, nor its outputs",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string notes = write_file(folder / "notes.txt", std::string(5000, 'a')),
                    config = write_file(folder / "ds.json", "{}"), out = folder / "run";
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& text) {
    const Finished finished = train(flags);
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(contains(finished.err, text));
  };
  refused({"--data", notes, "--trace", notes}, "notes.txt' exists");
  refused({"--config", config, "--trace", config}, "ds.json' exists");
  for (const char* name : {"/metrics.jsonl", "/model.safetensors"})
    refused({"--out", out, "--trace", out + "/." + name},
            "is, or is inside, a file or folder of --out");
  refused({"--trace", "/dev/stderr"}, "/dev/stderr' exists");
  CHECK(read_file(notes) == std::string(5000, 'a'));
  CHECK(read_file(config) == "{}");
  CHECK(files_in(folder.path()) == std::vector<std::string>{"ds.json", "notes.txt"});
  write_file(folder / "t-zero1.json", "mine");
  const Finished taken = zerolab({"compare", "--model", "tiny", "--trace", folder / "t.json"});
  CHECK(taken.code == 2);
  CHECK(contains(taken.err, "t-zero1.json' exists"));
  CHECK(read_file(folder / "t-zero1.json") == "mine");
}

TEST_CASE("a trace may be written into the folder of --out", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = train({"--out", folder / "a/b", "--trace", folder / "a/b/trace.json"});
  CHECK(finished.code == 0);
  CHECK(files_in(folder / "a/b") == std::vector<std::string>{"metrics.jsonl", "model.safetensors",
                                                             "report.html", "report.json",
                                                             "trace.json"});
}

TEST_CASE("a refused trace leaves no folder of --out behind", "[zerolab]") {
  const ScratchFolder folder;
  CHECK(train({"--out", folder / "new/run/", "--trace", folder / "none/x"}).code == 2);
  CHECK(files_in(folder.path()).empty());
}

TEST_CASE("compare --trace writes a timeline of each stage that ran", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = zerolab({"compare", "--model", "tiny", "--steps", "1", "--ranks", "2",
                                     "--stages", "zero2", "--trace", folder / "run.json"});
  CHECK(finished.code == 0);
  CHECK(files_in(folder.path()) == std::vector<std::string>{"run-ddp.json", "run-zero2.json"});
  CHECK(contains(finished.err, "trace: " + (folder / "run-zero2.json")));
  const auto collectives = [&](const std::string& name) {
    std::set<std::string> all;
    const auto json = nlohmann::json::parse(read_file(folder / name));
    for (const auto& event : json["traceEvents"])
      if (event["ph"] == "X" && event["cat"] == "collective") all.insert(event["args"]["kind"]);
    return all;
  };
  CHECK(collectives("run-ddp.json").contains("all_reduce"));
  CHECK_FALSE(collectives("run-zero2.json").contains("all_reduce"));
  CHECK(collectives("run-zero2.json").contains("reduce_scatter"));
  CHECK(zerolab({"compare", "--model", "tiny", "--trace", folder / "none/run.json"}).code == 2);
}

TEST_CASE("a trace that cannot be written is refused before the run", "[zerolab]") {
  const ScratchFolder folder;
  for (const std::string& path : {folder / "none/run.json", folder.path()}) {
    const Finished refused = train({"--trace", path});
    CAPTURE(path, refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(contains(refused.err, path));
    CHECK_FALSE(contains(refused.err, "step"));
  }
  CHECK(train({"--trace", ""}).code == 2);
  CHECK(train({"--trace", folder / "run.json", "--device-memory", "100KiB"}).code == 3);
  CHECK(files_in(folder.path()).empty());  // of a run that fails nothing stays
}

}  // namespace cli
