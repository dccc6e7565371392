#include "dist/trace/mismatch.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tensor/error.h"

namespace zl {

std::string ranks_text(uint64_t ranks) {
  std::string text = std::popcount(ranks) == 1 ? "rank " : "ranks ";
  for (int left = std::popcount(ranks); ranks; ranks &= ranks - 1, --left)
    text += str(std::countr_zero(ranks), left > 2 ? ", " : left == 2 ? " and " : "");
  return text;
}

std::string mismatch_text(const std::vector<const Call*>& calls) {
  const Call *first = nullptr, *second = nullptr;
  for (const Call* call : calls) {
    if (!call) continue;
    if (!first) first = call;
    if (!second && !(*call == *first)) second = call;
  }
  if (!second) return "";
  uint64_t as_first = 0, as_second = 0;
  for (size_t r = 0; r < calls.size(); ++r) {
    if (calls[r] && *calls[r] == *first) as_first |= uint64_t(1) << r;
    if (calls[r] && *calls[r] == *second) as_second |= uint64_t(1) << r;
  }
  const bool show = first->kind == second->kind && first->reduction != second->reduction;
  // The odd one out first.
  const bool swapped = std::popcount(as_first) < std::popcount(as_second);
  const auto said = [&](bool of_first) {
    const uint64_t ranks = of_first ? as_first : as_second;
    return str(ranks_text(ranks), std::popcount(ranks) == 1 ? " calls " : " call ",
               describe(of_first ? *first : *second, show));
  };
  return str(said(swapped), " while ", said(!swapped), "; ", kSameOrder);
}

std::string first_mismatch_text(const std::vector<const FlightRecorder*>& ranks) {
  std::vector<std::vector<FlightRecord>> records;
  int64_t begin = 0,
          end =
              std::numeric_limits<int64_t>::max();  // what all ranks that made calls still remember
  for (const FlightRecorder* rank : ranks) {
    records.push_back(rank->recent(std::numeric_limits<int64_t>::max()));
    std::erase_if(records.back(),
                  [](const FlightRecord& record) { return record.call.between_two(); });
    if (records.back().empty()) continue;
    begin = std::max(begin, records.back().front().call.sequence);
    end = std::min(end, records.back().back().call.sequence + 1);
  }
  if (end == std::numeric_limits<int64_t>::max()) return "";
  for (int64_t sequence = begin; sequence < end; ++sequence) {
    std::vector<const Call*> calls;
    for (const auto& of_rank : records) {
      const auto found = std::ranges::find(
          of_rank, sequence, [](const FlightRecord& record) { return record.call.sequence; });
      calls.push_back(found == of_rank.end() ? nullptr : &found->call);
    }
    if (std::string text = mismatch_text(calls); !text.empty()) return text;
  }
  return "";
}

std::string WaitingCalls::mismatch(int rank, const FlightRecorder& flight) const {
  for (const FlightRecord& record : flight.recent(64))
    if (std::string text = record.call.between_two() ? "" : mismatch(rank, record.call);
        !text.empty())
      return text;
  return "";
}

void WaitingCalls::waits_in(int rank, const Call& call) {
  const std::lock_guard lock(mutex_);
  Waiting& waiting = waiting_[rank];
  waiting.name = call.name;
  waiting.call = call;
  waiting.call.name = waiting.name;
}

std::string WaitingCalls::mismatch(int rank, const Call& call) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [other, waiting] : waiting_) {
    if (other == rank || waiting.call.sequence != call.sequence) continue;
    std::vector<const Call*> calls(size_t(std::max(rank, other)) + 1);
    calls[size_t(rank)] = &call;
    calls[size_t(other)] = &waiting.call;
    if (std::string text = mismatch_text(calls); !text.empty()) return text;
  }
  return "";
}

}  // namespace zl
