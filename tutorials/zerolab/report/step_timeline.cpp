#include "tutorials/zerolab/report/step_timeline.h"

#include <algorithm>
#include <string_view>

#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

constexpr int kTimelineColumns = 72;
constexpr size_t kMostRanks = 8;  // that are shown

// [ns] How much of [begin, end) the spans cover; they do not overlap each other much.
template <class Span>
int64_t covered(const std::vector<Span>& spans, int64_t begin, int64_t end) {
  int64_t sum = 0;
  for (const Span& s : spans)
    sum += std::max<int64_t>(0, std::min(s.end, end) - std::max(s.begin, begin));
  return std::min(sum, end - begin);
}

}  // namespace

void StepTimeline::see(Rank& rank, const Event& event) {
  const std::string_view phase = event.phase;
  if (!rank.recording || phase == "evaluate") return;
  if (event.kind == EventKind::phase && phase == "step") rank.updated = true;
  if (event.kind == EventKind::phase && phase == "data" && rank.updated) {  // the next step
    rank.updated = false;
    rank.begin = event.nanoseconds;
    rank.in_flight.clear();
    rank.waiting.clear();
  }
  rank.end = std::max(rank.end, event.nanoseconds);
  see_call(rank, event);
}

void StepTimeline::see_call(Rank& rank, const Event& event) {
  if (event.kind == EventKind::collective_begin)
    rank.open.push_back({event.detail, event.nanoseconds, 0, 0});
  const auto call = std::ranges::find(rank.open, event.detail, &Call::name);
  if (call == rank.open.end()) return;
  if (event.kind == EventKind::collective_wait) call->waits_from = event.nanoseconds;
  if (event.kind == EventKind::collective_moved) call->moved = event.nanoseconds;
  if (event.kind != EventKind::collective_end) return;
  rank.in_flight.push_back({call->issued, call->moved ? call->moved : event.nanoseconds});
  rank.waiting.push_back({call->waits_from ? call->waits_from : call->issued, event.nanoseconds});
  rank.open.erase(call);
}

void StepTimeline::at_start(Trainer& training) {
  if (!rank_options(training.spec()).lane) return;
  Rank& rank = ranks_[size_t(training.comm().rank())];
  rank.recording = true;
  training.comm().events().listen([&rank](const Event& event) { see(rank, event); });
}

// Calls that nothing has waited for are in flight until the end of the step.
void StepTimeline::at_end(Trainer& training) {
  Rank& rank = ranks_[size_t(training.comm().rank())];
  rank.recording = false;
  for (const Call& call : rank.open) rank.in_flight.push_back({call.issued, rank.end});
}

std::string StepTimeline::line(const Rank& rank, const Span& step) {
  std::string text;
  for (int64_t c = 0; c < kTimelineColumns; ++c) {
    const int64_t length = step.end - step.begin,
                  begin = step.begin + length * c / kTimelineColumns,
                  end = step.begin + length * (c + 1) / kTimelineColumns;
    const int64_t waits = covered(rank.waiting, begin, end);
    const int64_t flies = covered(rank.in_flight, begin, end);
    text += begin >= rank.end || end <= rank.begin ? ' '
            : 2 * waits > end - begin              ? '.'
            : 2 * flies > end - begin              ? '='
                                                   : '#';
  }
  return text;
}

std::string StepTimeline::text(const std::string& stage) const {
  Span step{ranks_[0].begin, ranks_[0].end};
  for (const Rank& rank : ranks_) {
    if (rank.begin == 0) return "";
    step = {std::min(step.begin, rank.begin), std::max(step.end, rank.end)};
  }
  std::string text =
      str(stage, ", the last step, ", milliseconds(double(step.end - step.begin) * 1e-9), " ms:\n");
  for (size_t r = 0; r < std::min(kMostRanks, ranks_.size()); ++r)
    text += str("  rank ", r, "  ", line(ranks_[r], step), "\n");
  if (ranks_.size() > kMostRanks)
    text += str("  and ", ranks_.size() - kMostRanks, " more ranks\n");
  return text;
}

}  // namespace zl::cli
