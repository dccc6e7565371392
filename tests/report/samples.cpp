#include "tests/report/samples.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"
#include "tutorials/zerolab/report/page/page.h"

namespace report_page {

using nlohmann::json;

namespace {

const std::string bad =
    "<b id='x'>\"q\" & 'r'</b> </script><img src=x onerror=alert(1)> {{report}} "
    "\x1b[31m \u202e \u2028 \u2029 =1+2";

void keep_stages(json& report, size_t count) {
  json& recordings = report["recordings"];
  while (recordings.size() > count) recordings.erase(recordings.size() - 1);
}

}  // namespace

std::string report_of(std::vector<std::string> arguments) {
  const cli::ScratchFolder folder;
  arguments.insert(arguments.end(), {"--out", folder / "run", "-q"});
  const cli::Finished run = cli::zerolab(arguments);
  INFO(run.err);
  REQUIRE(run.code == 0);
  const std::string report = cli::read_file(folder / "run/report.json");
  CHECK(cli::read_file(folder / "run/report.html") == zl::cli::page_html(report));
  if (arguments[0] == "compare")
    CHECK(json::parse(report)["document"] ==
          json::parse(cli::read_file(folder / "run/compare.json")));
  return report;
}

std::string sample_report() {
  static const std::string report =
      report_of({"compare", "--model", "tiny", "--ranks", "3", "--steps", "20"});
  return report;
}

std::string with_bad_names(const std::string& text) {
  json report = json::parse(text);
  report["about"]["command"] = report["about"]["settings"] = report["about"]["device"] = bad;
  report["document"]["model"]["name"] = report["document"]["data"]["name"] = bad;
  report["sampled"] = {bad};
  for (json& recording : report["recordings"])
    for (json& unit : recording["units"]) {
      const std::string name = unit["name"], renamed = bad + name;
      unit["name"] = renamed;
      for (json& text : recording["texts"])
        for (const std::string end : {"", " parameter", " gradient"})
          if (text == name + end) text = renamed + end;
    }
  return report.dump();
}

std::string with_nan_losses(const std::string& text) {
  json report = json::parse(text);
  for (auto& [stage, steps] : report["metrics"].items())
    for (const size_t step : {1, 2}) steps[step]["loss"] = steps[step]["grad_norm"] = nullptr;
  for (json& stage : report["document"]["stages"])
    for (const size_t step : {1, 2}) stage["loss"][step] = stage["grad_norm"][step] = nullptr;
  return report.dump();
}

std::string that_failed(const std::string& text) {
  json report = json::parse(text);
  report["document"] = nullptr;
  report["failure"] = {{"message", "rank 2 needs 12,768 B of device memory\n" + bad},
                       {"after_step", 3}};
  report["steps_asked"] = 100;
  for (const char* stage : {"zero2", "zero3"}) report["metrics"].erase(stage);
  keep_stages(report, 2);
  return report.dump();
}

std::string that_did_not_fit(const std::string& text) {
  json report = json::parse(text);
  report["document"]["ok"] = false;
  report["document"]["stages"][0] = {{"stage", "ddp"},
                                     {"out_of_memory",
                                      {{"rank", 1},
                                       {"pool", "device"},
                                       {"unit", "h.1"},
                                       {"phase", "initialize"},
                                       {"asked", 12768}}}};
  report["metrics"].erase("ddp");
  report["recordings"].erase(0);
  return report.dump();
}

std::string without_recordings(const std::string& text) {
  json report = json::parse(text);
  report["recordings"] = json::array();
  return report.dump();
}

}  // namespace report_page
