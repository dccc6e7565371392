// report.json and report.html in the folder of --out: what a run of train or compare records for
// them, and when they are written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutorials/recording/run_recording.h"
#include "tutorials/zerolab/report/report_json.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

enum class Existing { keep, replace };
struct TextFile {
  std::string path, text;
};
// All of them, complete, or none. Throws OutputError; also if one exists and is to be kept.
void write_files(const std::vector<TextFile>& files, Existing existing);
// DIR/report.json and DIR/report.html.
std::vector<TextFile> report_files(const std::string& folder, const std::string& report_json);

class RunPage {
 public:
  // Without a folder ("") nothing is recorded or written. Only the process of rank 0 `writes`.
  // `existing`: files, of a run that goes on. `setup` must outlive this.
  struct Files {
    std::string folder;
    bool writes = true;
    Existing existing = Existing::keep;
  };
  RunPage(const RunSetup& setup, const std::string& kind, const std::string& settings, Files files);
  RunPage(const RunPage&) = delete;  // the ranks' listeners hold its address
  RunPage& operator=(const RunPage&) = delete;

  // To be called on each rank before the first step of a stage and after each, and on rank 0 after
  // each. train writes report.json when its step is recorded, so that a run that is killed leaves
  // it; a full disk ends the recording but not the run.
  void at_start(Trainer& training);
  void after_step(Trainer& training);
  void on_step(StageKind stage, const StepRecord& record);

  // When all ranks have ended; `more` are written with the two. Throws OutputError.
  void write(const std::string& document, const std::vector<TextFile>& more = {});
  // When the run has ended early; `message` says why. Nothing is written if no step was made.
  // Returns whether the files were written; a full disk is no reason to throw.
  bool write_failure(const std::string& message, RunEnd end);

  std::string file() const;  // DIR/report.html; "" without a folder

 private:
  RunReport report() const;

  const RunSetup& setup_;
  const std::string kind_, settings_;
  Files files_;
  std::map<StageKind, recording::RunRecording> recordings_;
  std::map<StageKind, std::vector<std::string>> metrics_;  // of compare
  int64_t last_step_ = 0;
  bool made_ = false;    // a step
  std::string problem_;  // of the first write; "" if there was none
};

// The lines of DIR/metrics.jsonl; empty if there is no such regular file.
std::optional<std::vector<std::string>> metrics_lines(const std::string& folder);

}  // namespace zl::cli
