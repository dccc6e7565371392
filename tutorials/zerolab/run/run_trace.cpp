#include "tutorials/zerolab/run/run_trace.h"

#include <algorithm>
#include <filesystem>

#include "dist/trace/chrome_trace.h"
#include "tensor/io/file_calls.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

// Of one rank, 48 bytes each; of all ranks.
constexpr int64_t kMostEvents = 100'000, kMostOfAll = 1'000'000;

}  // namespace

RunTrace::RunTrace(const std::string& path, const std::string& out, int ranks, bool writes)
    : path_(path) {
  ranks_.assign(size_t(ranks), TraceRecorder(0));
  if (!writes) return;
  require_apart("--trace", path, out);
  require_new();
  file_.emplace(path, "", false);
}

void RunTrace::require_new() const {
  require_input(!std::filesystem::exists(std::filesystem::symlink_status(path_)), "--trace: '",
                path_, "' exists; name another file, or remove that one");
}

void RunTrace::at_start(Trainer& training) {
  TraceRecorder& recorder = ranks_[size_t(training.comm().rank())];
  recorder = TraceRecorder(std::min(kMostEvents, kMostOfAll / training.comm().size()));
  recorder.begin(training.memory().ledger(), training.host().ledger(),
                 training.disk() ? &training.disk()->ledger() : nullptr);
  training.comm().events().listen([&recorder](const Event& event) { recorder.see(event); });
}

// One rank after the other, since each rank's events are sent to all ranks.
void RunTrace::at_end(Trainer& training) {
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
  write(all);
}

void RunTrace::write(const std::vector<RankTrace>& ranks) {
  try {
    file_->write([&](const std::string& temporary) {
      PendingFile pending(temporary);
      write_chrome_trace(ranks,
                         [&](std::string_view text) { pending.write(text.data(), text.size()); });
      pending.commit();
    });
    file_->commit();
  } catch (const OutputError& e) {
    problem_ = e.what();
  }
}

std::vector<std::string> RunTrace::written() const {
  if (!problem_.empty()) return {};
  return {path_};
}

std::string RunTrace::summary() const {
  if (!problem_.empty()) return "";
  std::string text = printable("trace: " + path_) + ", for ui.perfetto.dev or chrome://tracing\n";
  if (left_out_ > 0)
    text += str("note: the trace ends before the run: ", left_out_, " later events had no room (",
                kMostEvents, " of a rank, ", kMostOfAll, " in all); try fewer --steps\n");
  return text;
}

}  // namespace zl::cli
