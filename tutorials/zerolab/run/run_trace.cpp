#include "tutorials/zerolab/run/run_trace.h"

#include <algorithm>

#include "dist/trace/chrome_trace.h"
#include "tensor/io/pending_file.h"
#include "tutorials/zerolab/cli/output_file.h"

namespace zl::cli {
namespace {

constexpr int64_t kMostEvents = 100'000,
                  kMostOfAll = 1'000'000;  // of one rank, 48 bytes each; of all ranks

}  // namespace

RunTrace::RunTrace(std::string path, int ranks, bool writes) : path_(std::move(path)) {
  if (writes) {
    require_output_file(path_, "", true);
    PendingFile{path_};  // can be written; nothing stays
  }
  ranks_.assign(size_t(ranks), TraceRecorder(0));
}

void RunTrace::at_start(RankTraining& training) {
  TraceRecorder& recorder = ranks_[size_t(training.comm().rank())];
  recorder = TraceRecorder(std::min(kMostEvents, kMostOfAll / training.comm().size()));
  recorder.begin(training.memory().ledger(), training.host().ledger());
  training.comm().events().listen([&recorder](const Event& event) { recorder.see(event); });
}

// One rank after the other, since what is exchanged comes to all of them.
void RunTrace::at_end(RankTraining& training) {
  Communicator& comm = training.comm();
  TraceRecorder& own = ranks_[size_t(comm.rank())];
  own.stop();
  std::vector<RankTrace> all;
  for (int r = 0; r < comm.size(); ++r) {
    const std::vector<std::string> parts =
        comm.exchange(r == comm.rank() ? encode(own.trace()) : "", "trace");
    if (comm.rank() == 0) all.push_back(decode_trace(parts[size_t(r)]));
  }
  own = TraceRecorder(0);
  if (comm.rank() != 0) return;
  align_clocks(all);
  for (const RankTrace& rank : all) left_out_ += rank.left_out;
  PendingFile file(path_);
  write_chrome_trace(all, [&](std::string_view piece) { file.write(piece.data(), piece.size()); });
  file.commit();
}

std::string RunTrace::summary() const {
  std::string text = "trace: " + path_ + ", for ui.perfetto.dev or chrome://tracing\n";
  if (left_out_ > 0)
    text += str("note: the trace ends before the run: ", left_out_, " later events had no room (",
                kMostEvents, " of a rank, ", kMostOfAll, " in all); try fewer --steps\n");
  return text;
}

}  // namespace zl::cli
