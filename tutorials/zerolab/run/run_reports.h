// What a run reports in files of their own while it trains: --trace, the timeline, and what
// DeepSpeed's keys csv_monitor and tensorboard ask for.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "dist/trace/chrome_trace.h"
#include "tensor/io/file_calls.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/monitors/monitor_files.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

class RunTrace {
 public:
  // Throws InputError if the file exists, cannot be written, or is one of those
  // that --out will hold. Only the process of rank 0 `writes`.
  RunTrace(const std::string& path, const std::string& out, int ranks, bool writes)
      : path_(path), ranks_(size_t(ranks), TraceRecorder(0)) {
    if (!writes) return;
    require_apart("--trace", path, out);
    require_input(!std::filesystem::exists(std::filesystem::symlink_status(path)), "--trace: '",
                  path, "' exists; name another file, or remove that one");
    file_.emplace(path, "", false);
  }
  RunTrace(const RunTrace&) = delete;  // the ranks' listeners hold its address
  RunTrace& operator=(const RunTrace&) = delete;

  // To be called on each rank before the first step and after the last one. The
  // file has the steps and the evaluations between them.
  void at_start(Trainer& training) {
    TraceRecorder& recorder = ranks_[size_t(training.comm().rank())];
    recorder = TraceRecorder(std::min(kMostEvents, kMostOfAll / training.comm().size()));
    recorder.begin(training.memory().ledger(), training.host().ledger(),
                   training.disk() ? &training.disk()->ledger() : nullptr);
    training.comm().events().listen([&recorder](const Event& event) { recorder.see(event); });
  }
  // Rank 0 writes a complete file or none, and then throws OutputError. Each
  // rank's events are sent to all ranks, so one rank sends after the other.
  void at_end(Trainer& training) {
    Communicator& comm = training.comm();
    TraceRecorder& own = ranks_[size_t(comm.rank())];
    own.stop();
    std::vector<RankTrace> all;
    for (int r = 0; r < comm.size(); ++r) {
      const std::vector<std::string> parts =
          comm.all_gather_object(r == comm.rank() ? encode(own.trace()) : "", "trace");
      if (comm.rank() == 0) all.push_back(decode_trace(parts[size_t(r)]));
    }
    own = TraceRecorder(0);
    if (comm.rank() != 0) return;
    align_clocks(all);
    for (const RankTrace& rank : all) left_out_ += rank.left_out;
    file_->write([&](const std::string& path) {
      PendingFile file(path);
      write_chrome_trace(all, [&](std::string_view text) { file.write(text.data(), text.size()); });
      file.commit();
    });
    written_ = true;
  }

  const std::string& path() const { return path_; }
  bool written() const { return written_; }
  // "trace: run.json, for ui.perfetto.dev or chrome://tracing", and whether it
  // is cut. To be called when all ranks have ended.
  std::string summary() const {
    if (!written_) return "";
    std::string text = printable("trace: " + path_) + ", for ui.perfetto.dev or chrome://tracing\n";
    if (left_out_ > 0)
      text += str("note: the trace ends before the run: ", left_out_, " later events had no room (",
                  kMostEvents, " of a rank, ", kMostOfAll, " in all); try fewer --steps\n");
    return text;
  }

 private:
  // Of one rank, 48 bytes each; of all ranks.
  static constexpr int64_t kMostEvents = 100'000, kMostOfAll = 1'000'000;

  const std::string path_;
  std::optional<OutputFile> file_;
  std::vector<TraceRecorder> ranks_;  // each used by its rank's thread only
  int64_t left_out_ = 0;              // events
  bool written_ = false;
};

// The monitors that are enabled. Throws InputError if a folder cannot be written to, or is one that
// the run writes.
inline std::vector<MonitorFiles> open_monitors(const RunSetup& setup) {
  std::vector<MonitorFiles> all;
  for (const auto& [key, monitor] : {std::pair("csv_monitor", &setup.config.csv_monitor),
                                     {"tensorboard", &setup.config.tensorboard}}) {
    if (!monitor->enabled) continue;
    require_apart(key, monitor->output_path + "/" + monitor->job_name,
                  setup.spec.checkpoint.folder);
    all.emplace_back(key, *monitor);
  }
  return all;
}

// DeepSpeed writes the rate after the scheduler's step: the next step's. Its pipeline engine writes
// train_loss and eval_loss, all its engines the others.
inline void add_step(MonitorFiles& files, const RunSetup& setup, const Engine& engine,
                     const StepRecord& record) {
  const Config& config = setup.config;
  const int64_t samples = record.step * config.micro_batch * config.accumulation * setup.spec.ranks;
  files.add("lr", samples, engine.learning_rate());
  files.add("train_loss", samples, record.loss);
  if (config.precision == Dtype::f16) files.add("loss_scale", samples, engine.loss_scale());
  if (record.eval_loss) files.add("eval_loss", samples, *record.eval_loss);
}

}  // namespace zl::cli
