#include "tutorials/zerolab/run/run_trace.h"

#include <algorithm>
#include <filesystem>

#include "dist/trace/chrome_trace.h"
#include "dist/trace/memory_snapshot.h"
#include "tensor/io/pending_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

// Of one rank, 48 bytes each; of all ranks.
constexpr int64_t kMostEvents = 100'000, kMostOfAll = 1'000'000;

}  // namespace

RunTrace::RunTrace(const TraceFiles& files, const std::string& out, int ranks, bool writes)
    : files_(files) {
  ranks_.assign(size_t(ranks), TraceRecorder(0));
  if (!writes) return;
  require_input(
      files.timeline.empty() || files.memory.empty() || !same_file(files.timeline, files.memory),
      "--trace and --memory-snapshot name the same file; name two");
  require_apart("--trace", files.timeline, out);
  require_apart("--memory-snapshot", files.memory, out);
  require_new();
  if (!files.timeline.empty()) timeline_.emplace(files.timeline, "", false);
  if (!files.memory.empty()) memory_.emplace(files.memory, "", false);
}

void RunTrace::require_new() const {
  for (const auto& [flag, path] :
       {std::pair("--trace", files_.timeline), {"--memory-snapshot", files_.memory}})
    require_input(!std::filesystem::exists(std::filesystem::symlink_status(path)), flag, ": '",
                  path, "' exists; name another file, or remove that one");
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
  if (timeline_) write(*timeline_, all, write_chrome_trace);
  if (memory_) write(*memory_, all, write_memory_snapshot);
}

void RunTrace::write(OutputFile& file, const std::vector<RankTrace>& ranks, Writer writer) {
  try {
    file.write([&](const std::string& temporary) {
      PendingFile pending(temporary);
      writer(ranks, [&](std::string_view text) { pending.write(text.data(), text.size()); });
      pending.commit();
    });
    file.commit();
  } catch (const OutputError& e) {
    if (problem_.empty()) problem_ = e.what();
  }
}

std::vector<std::string> RunTrace::written() const {
  std::vector<std::string> all;
  for (const std::string& path : {files_.timeline, files_.memory})
    if (problem_.empty() && !path.empty()) all.push_back(path);
  return all;
}

std::string RunTrace::summary() const {
  if (!problem_.empty()) return "";
  std::string text;
  if (timeline_)
    text += printable("trace: " + files_.timeline) + ", for ui.perfetto.dev or chrome://tracing\n";
  if (memory_)
    text += printable("memory snapshot: " + files_.memory) + ", for pytorch.org/memory_viz\n";
  if (left_out_ > 0)
    text += str("note: the trace ends before the run: ", left_out_, " later events had no room (",
                kMostEvents, " of a rank, ", kMostOfAll, " in all); try fewer --steps\n");
  return text;
}

}  // namespace zl::cli
