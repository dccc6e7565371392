// What DeepSpeed's keys make train tell beside its report.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/stages/train/event_file.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

Finished train(std::vector<std::string> flags, bool terminal = false) {
  flags.insert(flags.begin(), {"train", "--model", "tiny", "--sample", "5", "--ranks", "2"});
  return run({.arguments = flags, .terminal = terminal});
}

std::vector<std::string> starting(const std::string& text, const std::string& begin) {
  std::vector<std::string> found;
  for (const std::string& line : lines(text))
    if (line.starts_with(begin)) found.push_back(line);
  return found;
}

// The number behind "fwd: ".
double part(const std::string& line, const std::string& name) {
  const size_t at = line.find("| " + name + ": ");
  REQUIRE(at != std::string::npos);
  return std::stod(line.substr(at + name.size() + 4));
}

}  // namespace

TEST_CASE("wall_clock_breakdown says where the time of each step went", "[zerolab]") {
  for (const char* stage : {"ddp", "zero3"}) {
    CAPTURE(stage);
    const Finished finished =
        train({"--steps", "3", "--stage", stage, "--eval-every", "2", "--set",
               "wall_clock_breakdown=true", "--set", "gradient_accumulation_steps=2"});
    REQUIRE(finished.code == 0);
    const auto times = starting(finished.err, "time (ms) | fwd: ");
    REQUIRE(times.size() == 3);
    for (const std::string& line : times) {
      CAPTURE(line);
      CHECK((part(line, "fwd") > 0 && part(line, "bwd") > 0 && part(line, "step") > 0));
      CHECK(std::abs(part(line, "bwd_inner") + part(line, "bwd_allreduce") - part(line, "bwd")) <
            0.02);
      CHECK(part(line, "comm") >= part(line, "bwd_allreduce") - 0.01);
      CHECK(part(line, "comm") <=
            part(line, "fwd") + part(line, "bwd") + part(line, "step") + 0.02);
    }
    CHECK_FALSE(contains(finished.out, "time (ms)"));
  }
  CHECK_FALSE(contains(train({"--steps", "1"}).err, "time (ms)"));
}

TEST_CASE("steps_per_print adds DeepSpeed's line at each N-th step, also on a terminal",
          "[zerolab]") {
  const std::vector<std::string> flags = {"--steps", "7", "--set", "steps_per_print=3"};
  for (const bool terminal : {false, true}) {
    CAPTURE(terminal);
    Finished finished = train(flags, terminal);
    REQUIRE(finished.code == 0);
    std::string err = finished.err;
    if (terminal)
      CHECK(contains(
          err,
          "\r\x1b[Kstep=3, "));  // the line that is written over is wiped, and drawn anew below
    for (size_t at; (at = err.find("\x1b[K")) != std::string::npos;) err.replace(at, 3, "\n");
    err.erase(std::remove(err.begin(), err.end(), '\r'), err.end());
    CHECK(starting(err, "step=") ==
          std::vector<std::string>{"step=3, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]",
                                   "step=6, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"});
  }
  auto quiet = flags;
  quiet.push_back("-q");
  CHECK(train(quiet).err.empty());
  CHECK(contains(
      train({"--steps", "2", "--set", "steps_per_print=2", "--set", "optimizer.type=SGD", "--set",
             "optimizer.params.momentum=0.5", "--set", "optimizer.params.lr=1e30"})
          .err,
      "step=2, skipped=1, lr=[1e+30], mom=[0.5]"));
}

TEST_CASE("comms_logger ends with DeepSpeed's table on stderr, and stdout stays one document",
          "[zerolab]") {
  const Finished finished = train({"--steps", "4", "--stage", "zero3", "--eval-every", "2",
                                   "--json", "--set", "comms_logger.enabled=true"});
  REQUIRE(finished.code == 0);
  const Json document = Json::parse(finished.out);  // throws if anything else is there
  const auto err = lines(finished.err);
  const auto head = std::find_if(err.begin(), err.end(), [](const std::string& line) {
    return line.starts_with("Comm. Op            Message Size        Count ");
  });
  REQUIRE(head != err.end());
  CHECK(contains(finished.err, "\nBreakdown with straggler effect\n"));
  CHECK(starting(finished.err, "comm op: ").empty());
  // The counts of a kind are those of the log, in which evaluations and the sample do not count
  // either.
  std::map<std::string, int64_t> counts, expected;
  std::string kind;
  for (auto line = head + 1; line != err.end() && !line->starts_with("___"); ++line) {
    if (line->front() != ' ')
      kind = *line;
    else
      counts[kind] += std::stoll(line->substr(40, 20));
  }
  for (const Json& row : document["communication"])
    expected[row["collective"]] += row["calls"].get<int64_t>() * 4;
  CHECK(counts == expected);
  CHECK(counts.at("all_gather") > 0);
}

TEST_CASE("comms_logger tells of the chosen collectives only, and of each call if it is verbose",
          "[zerolab]") {
  const std::vector<std::string> some = {
      "--steps", "1", "--set",
      "comms_logger={\"enabled\":true,\"verbose\":true,\"debug\":true,\"prof_all\":false,"
      "\"prof_ops\":[\"reduce_scatter_tensor\",\"custom_op\"]}"};
  auto flags = some;
  flags.insert(flags.end(), {"--stage", "zero1"});
  const Finished finished = train(flags);
  REQUIRE(finished.code == 0);
  CHECK(contains(finished.err,
                 "note: comms_logger.prof_ops: no collective of zerolab is called custom_op"));
  const auto calls = starting(finished.err, "comm op: ");
  CHECK(calls.size() == 3);  // the units of tiny: embeddings with head, two blocks
  for (const std::string& line : calls) {
    CHECK(line.starts_with("comm op: reduce_scatter | time (ms): "));
    CHECK(contains(line, " gradient | waited (ms): "));
  }
  CHECK_FALSE(contains(finished.err, "all_gather\n"));
  CHECK(contains(train(some).err,
                 "rank 0 made no call of the chosen collectives"));  // ddp scatters nothing
}

TEST_CASE("csv_monitor writes DeepSpeed's files", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished =
      train({"--steps", "3", "--eval-every", "3", "--json", "--set", "csv_monitor.enabled=true",
             "--set", "csv_monitor.output_path=\"" + (folder / "csv") + "\"", "--set",
             "csv_monitor.job_name=\"a job\"", "--set", "gradient_accumulation_steps=2", "--set",
             R"(scheduler={"type":"WarmupLR","params":{"warmup_min_lr":0,"warmup_max_lr":0.002,)"
             R"("warmup_num_steps":2,"warmup_type":"linear"}})"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const Json document = Json::parse(finished.out);
  const auto file = [&](const std::string& value) {
    return read_file(folder / ("csv/a job/Train_Samples_" + value + ".csv"));
  };
  CHECK(files_in(folder / "csv/a job").size() == 3);
  std::string loss = "step,train_loss\r\n";
  for (int i = 0; i < 3; ++i)
    loss += std::to_string(16 * (i + 1)) + "," + document["loss"][size_t(i)].dump() + "\r\n";
  CHECK(file("train_loss") == loss);
  CHECK(file("eval_loss") == "step,eval_loss\r\n48," + document["eval_loss"].dump() + "\r\n");
  const std::string next = document["lr"][1].dump(), after = document["lr"][2].dump();
  CHECK(file("lr").starts_with("step,lr\r\n16," + next + "\r\n32," + after + "\r\n48,"));
  CHECK(next != after);
}

TEST_CASE("tensorboard's file has the values of csv_monitor's files, as fp32", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = "\"" + (folder / "logs") + "\"";
  const Finished finished =
      train({"--steps", "3", "--eval-every", "3", "--precision", "fp16", "--set",
             "wall_clock_breakdown=true", "--set",
             "tensorboard={\"enabled\":true,\"output_path\":" + path + ",\"job_name\":\"board\"}",
             "--set", "csv_monitor={\"enabled\":true,\"output_path\":" + path + "}"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const auto names = files_in(folder / "logs/board");
  REQUIRE(names.size() == 1);
  std::map<std::string, std::string> rows;
  for (const auto& event :
       zl::test::read_event_file(read_file(folder / ("logs/board/" + names[0]))))
    if (!event.tag.empty())
      rows[event.tag] += std::to_string(event.step) + " " + std::to_string(event.value) + "\n";
  std::map<std::string, std::string> expected;
  for (const std::string& name : files_in(folder / "logs/DeepSpeedJobName")) {
    const std::string tag = "Train/Samples/" + name.substr(14, name.size() - 18);
    for (const std::string& line : lines(read_file(folder / ("logs/DeepSpeedJobName/" + name))))
      if (!line.starts_with("step"))
        expected[tag] += std::to_string(std::stoll(line)) + " " +
                         std::to_string(float(std::stod(line.substr(line.find(',') + 1)))) + "\n";
  }
  CHECK(rows == expected);
  CHECK(rows.size() == 9);
  CHECK(lines(rows["Train/Samples/train_loss"]).size() == 3);
  CHECK(rows["Train/Samples/train_loss"].starts_with("8 5."));  // 4 sequences on 2 ranks
}

TEST_CASE("on a full disk csv_monitor and tensorboard end, training goes on, and the code is 74",
          "[zerolab]") {
  for (const char* key : {"csv_monitor", "tensorboard"}) {
    CAPTURE(key);
    const ScratchFolder folder;
    const Finished full =
        shell("ulimit -f 1; $ZEROLAB train --model tiny --steps 80 -q --sample 0 --set " +
              std::string(key) + ".enabled=true --set " + key + ".output_path='\"" +
              (folder / "logs") + "\"'");
    CHECK(full.code == 74);
    CHECK(contains(full.out, "at step 80"));
    CHECK(contains(full.err, "training goes on without it"));
    const auto files = files_in(folder / "logs/DeepSpeedJobName");
    REQUIRE_FALSE(files.empty());
    const std::string content = read_file(folder / ("logs/DeepSpeedJobName/" + files.back()));
    if (std::string(key) == "csv_monitor")
      CHECK(content.ends_with("\r\n"));
    else
      CHECK(zl::test::read_event_file(content).size() > 2);  // whole frames
  }
}

TEST_CASE("csv_monitor without a path writes beside where it runs, times too if they are asked for",
          "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = shell("cd '" + folder.path() +
                                  "' && \"$ZEROLAB\" train --model tiny --steps 1 -q --sample 0 "
                                  "--set csv_monitor.enabled=true --set wall_clock_breakdown=true");
  REQUIRE(finished.code == 0);
  CHECK(starting(finished.err, "time (ms)").size() == 1);  // asked for by name, so -q leaves it
  CHECK(files_in(folder / "DeepSpeedJobName").size() == 7);
  CHECK(read_file(folder / "DeepSpeedJobName/Train_Samples_elapsed_time_ms_forward.csv")
            .starts_with("step,elapsed_time_ms_forward\r\n4,"));
}

TEST_CASE("a csv file that cannot be written ends with exit 2 before training", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = write_file(folder / "file", "");
  const Finished finished = train({"--steps", "100000", "--set", "csv_monitor.enabled=true",
                                   "--set", "csv_monitor.output_path=\"" + path + "\""});
  CHECK(finished.code == 2);
  CHECK(contains(finished.err, "csv_monitor: the folder " + path));
}

TEST_CASE("compare and plan say once that these reports are train's", "[zerolab]") {
  const std::vector<std::string> reports = {
      "--model", "tiny", "--set", "comms_logger.enabled=true", "--set", "steps_per_print=5"};
  for (std::vector<std::string> flags :
       {std::vector<std::string>{"compare", "--steps", "1", "--stages", "ddp", "--ranks", "1"},
        {"plan"}}) {
    const std::string command = flags[0];
    flags.insert(flags.end(), reports.begin(), reports.end());
    const Finished finished = zerolab(flags);
    CHECK(finished.code == 0);
    CHECK(starting(finished.err, "note: steps_per_print, comms_logger: ") ==
          std::vector<std::string>{"note: steps_per_print, comms_logger: ignored by zerolab " +
                                   command + "; only zerolab train writes these reports"});
    CHECK_FALSE(contains(finished.err, "Comm. Op"));
  }
}

}  // namespace cli
