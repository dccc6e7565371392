#include "tutorials/zerolab/report/run_page.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tutorials/zerolab/cli/failure.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/page/page.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

std::string in_folder(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

std::optional<std::vector<std::string>> metrics_lines(const std::string& folder) {
  const std::string path = in_folder(folder, "metrics.jsonl");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

void write_files(const std::vector<TextFile>& files) {
  for (const TextFile& file : files) OutputFile(file.path, "", true).write_text(file.text);
}

std::vector<TextFile> report_files(const std::string& folder, const std::string& report_json) {
  return {{in_folder(folder, "report.json"), report_json},
          {in_folder(folder, "report.html"), page_html(report_json)}};
}

RunPage::RunPage(const RunSetup& setup, const std::string& kind, const std::string& settings,
                 Files files)
    : setup_(setup), kind_(kind), settings_(settings), files_(std::move(files)) {
  if (files_.folder.empty()) return;
  for (const StageKind stage : all_stages()) recordings_.try_emplace(stage, setup.spec.ranks);
}

std::string RunPage::file() const {
  return files_.folder.empty() ? "" : in_folder(files_.folder, "report.html");
}

void RunPage::at_start(Trainer& training) {
  if (!recordings_.empty()) recordings_.at(training.spec().engine.stage).at_start(training);
}

void RunPage::after_step(Trainer& training) {
  if (recordings_.empty()) return;
  const bool recorded = recordings_.at(training.spec().engine.stage).after_step(training);
  if (!recorded || kind_ != "train") return;
  write_files({{in_folder(files_.folder, "report.json"), report()}});
}

void RunPage::on_step(StageKind stage, const StepRecord& record) {
  last_step_ = record.step;
  made_ = true;
  if (files_.folder.empty() || kind_ == "train") return;
  metrics_[stage].push_back(metrics_line(record));
}

void RunPage::end(const std::string& result, const std::string& document,
                  const std::vector<TextFile>& more, std::vector<std::string> problems) {
  std::fputs(result.c_str(), stdout);
  std::fflush(stdout);
  if (!files_.folder.empty() && files_.writes) try {
      std::vector<TextFile> files = report_files(files_.folder, report(document));
      files.insert(files.end(), more.begin(), more.end());
      write_files(files);
    } catch (const OutputError& e) {
      problems.push_back(e.what());
    }
  for (const std::string& problem : problems)
    if (!problem.empty()) throw OutputError(problem);
}

int RunPage::end_early(const std::exception& e, const std::string& where, const std::string& left) {
  const bool interrupted = dynamic_cast<const Interrupted*>(&e) != nullptr;
  if (interrupted) interrupted_elsewhere();
  const int signal = interrupt_signal();
  if (interrupted && !files_.writes) return 128 + signal;
  std::string text = interrupted ? interrupted_by(signal) + where : e.what(), shown;
  if (!files_.folder.empty() && files_.writes && made_) try {
      const RunEnd end = is_interrupt(e, signal) ? RunEnd::interrupted : RunEnd::failed;
      const std::string json = report("", RunFailure{text, last_step_, end});
      write_files(report_files(files_.folder, json));
      shown = file() + " shows the steps so far";
    } catch (const std::exception& of_page) {  // the run's own error matters more
      say(of_page.what());
    }
  for (const std::string& note : {left, shown}) {
    if (note.empty()) continue;
    if (!interrupted) say(note, "note");
    text += "; " + note;
  }
  if (!interrupted) throw;
  say(text + (left.empty() && shown.empty() ? "; nothing was kept" : ""));
  return 128 + signal;
}

}  // namespace zl::cli
