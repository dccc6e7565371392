// report.json and report.html in the folder of --out: what a run of train or compare records for
// them, and when they are written. report.json has the run with the recorded step of each stage;
// the page is made from it. tutorials/reference/reports.md describes it.
#pragma once

#include <exception>
#include <map>
#include <string>
#include <vector>

#include "tutorials/recording/run_recording.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

struct TextFile {
  std::string path, text;
};
// Each complete or not at all; they replace old ones. Throws OutputError.
void write_files(const std::vector<TextFile>& files);
// DIR/report.json and DIR/report.html.
std::vector<TextFile> report_files(const std::string& folder, const std::string& report_json);

class RunPage {
 public:
  // Without a folder ("") nothing is recorded or written. Only the process of rank 0 `writes`.
  // `setup` must outlive this.
  struct Files {
    std::string folder;
    bool writes = true;
  };
  RunPage(const RunSetup& setup, const std::string& kind, const std::string& settings, Files files);
  RunPage(const RunPage&) = delete;  // the ranks' listeners hold its address
  RunPage& operator=(const RunPage&) = delete;

  // To be called on each rank before the first step of a stage and after each, and on rank 0 after
  // each. after_step() of train writes report.json when its step is recorded, so that a run that is
  // killed leaves it, or throws OutputError; the run can go on.
  void at_start(Trainer& training);
  void after_step(Trainer& training);
  void on_step(StageKind stage, const StepRecord& record);

  // When all ranks have ended: prints `result`, and then writes the page and `more`, so that
  // neither is lost if a file cannot be written. `document`: what --json prints. Throws OutputError
  // for the first of `problems` or of these files.
  void end(const std::string& result, const std::string& document,
           const std::vector<TextFile>& more = {}, std::vector<std::string> problems = {});
  // To be called where the error `e` that ended the run early is caught. `where`: " after step 3 of
  // 9"; `left`: which files there are, and how to go on, or "". Writes the page that shows how far
  // the run came, unless no step was made. Of an interrupted run it says these sentences and
  // returns the exit code; other errors it rethrows, after notes on stderr.
  int end_early(const std::exception& e, const std::string& where, const std::string& left);

  std::string file() const;  // DIR/report.html; "" without a folder

 private:
  // report.json. `document`: what --json prints; `failure`: as report.json has it.
  std::string report(const std::string& document = "null",
                     const std::string& failure = "null") const;

  const RunSetup& setup_;
  const std::string kind_, settings_;
  Files files_;
  std::map<StageKind, recording::RunRecording> recordings_;
  std::map<StageKind, std::string> metrics_;  // of compare: lines as of metrics.jsonl
  int64_t last_step_ = 0;                     // that this run has made; 0: none
};

// DIR/report.json with the steps of DIR/metrics.jsonl, if that is there, and, where neither an end
// nor a failure is recorded, with a failure that says so. Throws InputError that names the file if
// it is no report of this schema. The page says so where parts of it are damaged.
std::string continued_report(const std::string& folder);

}  // namespace zl::cli
