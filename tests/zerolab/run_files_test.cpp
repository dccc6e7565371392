// The files of a run: all of them are in its report, none takes another's name, and none stays
// after a process that was killed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/io/pending_file.h"
#include "tests/zerolab/checkpoint_run.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void check_refused(const ScratchFolder& folder, const Flags& more, const std::string& text) {
  const auto before = files_in(folder.path());
  const Finished finished = train(100'000, more);
  CAPTURE(more, finished.err);
  CHECK(finished.code == 2);
  CHECK(contains(finished.err, text));
  CHECK(files_in(folder.path()) == before);
}

}  // namespace

TEST_CASE("the files of monitors and traces are in the report of a run", "[zerolab]") {
  const ScratchFolder folder;
  const std::string command =
      "cd " + folder.path() + " && $ZEROLAB train --model tiny --steps 1 --sample 0 ";
  const std::string none = "files       none; --out DIR keeps metrics and weights";
  CHECK(contains(shell(command).out, none));  // the twin
  const Finished board = shell(command + "--set tensorboard.enabled=true");
  REQUIRE(files_in(folder.path()).size() == 1);
  const std::string name = files_in(folder.path())[0];
  CHECK(name.find("DeepSpeedJobName") == 0);
  CHECK_FALSE(contains(board.out, none));
  const std::string events = name + "/" + files_in(folder / name)[0];
  CHECK(contains(board.out, "files       " + events));
  const Json csv = Json::parse(
      shell(command + "--json --trace t.json --set csv_monitor.enabled=true").out)["files"];
  CHECK(csv["metrics"].is_null());
  CHECK(csv["more"] == Json{"t.json", "DeepSpeedJobName/Train_Samples_lr.csv",
                            "DeepSpeedJobName/Train_Samples_train_loss.csv"});
  for (const std::string file : csv["more"]) CHECK(fs::exists(folder / file));
  CHECK_FALSE(contains(shell(command + "--trace u.json").out, none));
}

TEST_CASE("with a fixed loss scale the advice after skipped steps is a smaller one", "[zerolab]") {
  const Flags fp16 = {"--precision", "fp16", "--set"};
  const Finished fixed = train(2, fp16 + Flags{"fp16.loss_scale=1e30"});
  INFO(fixed.err);
  CHECK(fixed.code == 1);
  CHECK(contains(fixed.err, "try a smaller fp16.loss_scale than the fixed 1e+30, "));
  const Finished searching = train(2, fp16 + Flags{"fp16.initial_scale_power=40"});
  CHECK(searching.code == 0);
  CHECK_FALSE(contains(searching.err + searching.out, "fixed"));
}

TEST_CASE("names that a run takes in --out are refused for traces and monitors before training",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "o", text = "of --out " + out;
  for (const char* name :
       {"latest", "step-00000002", "metrics.jsonl", "report.html", "./latest", "../o/latest"})
    for (const char* flag : {"--trace", "--memory-snapshot"})
      check_refused(folder, {"--out", out, "--save-every", "2", flag, out + "/" + name}, text);
  for (const char* monitor : {"csv_monitor", "tensorboard"})
    for (const char* name : {"latest", "step-00000002", "step-00000002/logs"})
      check_refused(folder,
                    {"--out", out, "--save-every", "2", "--set",
                     std::string(monitor) + "={\"enabled\":true,\"output_path\":\"" + out +
                         "\",\"job_name\":\"" + name + "\"}"},
                    text);
  const std::string csv = "csv_monitor={\"enabled\":true,\"output_path\":\"" + (folder / "c") +
                          "\",\"job_name\":\"j\"}";
  const Finished taken =
      train(100'000, {"--set", csv, "--trace", folder / "c/j/Train_Samples_lr.csv"});
  CHECK(taken.code == 2);
  const Finished fine = train(2, {"--out", out, "--save-every", "2", "--trace", out + "/t.json"});
  INFO(fine.err);
  CHECK(fine.code == 0);  // the twin
  CHECK(fs::exists(out + "/t.json"));
}

TEST_CASE("temporary files of a killed process are removed by the next one in that folder",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string trace = folder / "t.json";
  const auto temporary = [&] {
    Flags found;
    for (const std::string& name : files_in(folder.path()))
      if (name.starts_with(".zerolab-")) found.push_back(name);
    return found;
  };
  const pid_t child = fork();
  if (child == 0) {
    const zl::PendingFile file(trace);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(temporary().size() == 1);
  const std::string left = temporary()[0];
  // Files that look alike, of processes that this one cannot judge or that run, stay.
  const std::string own = fs::path(zl::temporary_beside(trace)).filename().string();
  const size_t host = std::string(".zerolab-").size();
  std::string elsewhere = left;
  elsewhere[host] = left[host] == '1' ? '2' : '1';
  for (const std::string& name :
       {elsewhere, own, std::string(".zerolab-"), std::string(".zerolab-x")})
    write_file(folder / name, "");
  std::string reused = own;  // this process's number, but another time of its beginning
  reused.insert(reused.find_last_of('-'), "1");
  write_file(folder / reused, "");
  REQUIRE(train(1, {"--trace", folder / "u.json"}).code == 0);
  auto kept = Flags{elsewhere, own, ".zerolab-", ".zerolab-x"};
  std::ranges::sort(kept);
  CHECK(temporary() == kept);
  CHECK_FALSE(fs::exists(folder / left));
}

}  // namespace cli
