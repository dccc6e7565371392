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

void write_files(const std::vector<TextFile>& files, Existing existing) {
  std::vector<OutputFile> all;
  for (const TextFile& file : files) all.emplace_back(file.path, "", existing == Existing::replace);
  for (size_t i = 0; i < all.size(); ++i) all[i].write_text(files[i].text);
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
  try {
    write_files({{in_folder(files_.folder, "report.json"), report()}}, files_.existing);
    files_.existing = Existing::replace;
  } catch (const OutputError& e) {
    problem_ = e.what();
    std::fprintf(stderr, "zerolab: %s; training goes on without it\n", printable(problem_).c_str());
  }
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
  if (!problem_.empty()) problems.push_back(problem_);
  if (!files_.folder.empty() && files_.writes && problem_.empty()) try {
      std::vector<TextFile> files = report_files(files_.folder, report(document));
      files.insert(files.end(), more.begin(), more.end());
      write_files(files, files_.existing);
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
  if (!files_.folder.empty() && files_.writes && made_ && problem_.empty()) try {
      const RunEnd end = is_interrupt(e, signal) ? RunEnd::interrupted : RunEnd::failed;
      const std::string json = report("", RunFailure{text, last_step_, end});
      write_files(report_files(files_.folder, json), files_.existing);
      shown = file() + " shows the steps so far";
    } catch (const std::exception& of_page) {  // the run's own error matters more
      std::fprintf(stderr, "zerolab: %s\n", printable(of_page.what()).c_str());
    }
  for (const std::string& note : {left, shown}) {
    if (note.empty()) continue;
    if (!interrupted) std::fprintf(stderr, "note: %s\n", printable(note).c_str());
    text += "; " + note;
  }
  if (!interrupted) throw;
  throw InterruptedRun(text + (left.empty() && shown.empty() ? "; nothing was kept" : ""));
}

}  // namespace zl::cli
