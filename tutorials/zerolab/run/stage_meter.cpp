#include "tutorials/zerolab/run/stage_meter.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

namespace zl::cli {
namespace {

int64_t total(const MemoryByUse& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
}

int use_of(const char* text) {
  int use = 0;
  while (use < kMemoryUses && std::string_view(name(MemoryUse(use))) != text) ++use;
  return use;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace

void StageMeter::see(Rank& rank, const Event& event) {
  const std::string_view phase = event.phase;
  if (event.kind == EventKind::phase && phase == "step") rank.updated = true;
  if (event.kind == EventKind::phase && phase == "forward" && rank.updated) {
    rank.waited.push_back(0);
    rank.updated = false;
  }
  if (rank.waited.empty() || phase == "evaluate") return;
  if (event.kind == EventKind::collective_begin)
    rank.open.push_back({event.detail, event.nanoseconds});
  const auto open = std::ranges::find(rank.open, event.detail, &Open::name);
  if (open == rank.open.end()) return;
  if (event.kind == EventKind::collective_wait) open->waits_from = event.nanoseconds;
  if (event.kind == EventKind::collective_met)
    rank.waited.back() += std::max<int64_t>(0, event.nanoseconds - open->waits_from);
  if (event.kind == EventKind::collective_met || event.kind == EventKind::collective_end)
    rank.open.erase(open);
}

void StageMeter::at_start(Trainer& training) {
  Rank& rank = ranks_[size_t(training.comm().rank())];
  training.comm().events().listen([&rank](const Event& event) { see(rank, event); });
  if (training.comm().rank() != 0) return;
  for (int use = 0; use < kMemoryUses; ++use)
    rank.live[size_t(use)] = training.memory().ledger().live(MemoryUse(use));
  rank.at_peak = rank.live;
  training.comm().events().listen([&rank](const Event& event) {
    const bool taken = event.kind == EventKind::allocate;
    if ((!taken && event.kind != EventKind::release) ||
        std::strcmp(event.detail, name(Pool::device)) != 0)
      return;
    rank.live[size_t(use_of(event.what))] += taken ? event.bytes : -event.bytes;
    if (total(rank.live) > total(rank.at_peak)) rank.at_peak = rank.live;
  });
}

void StageMeter::at_end(Trainer& training) {
  Communicator& comm = training.comm();
  const std::vector<int64_t>& waited = ranks_[size_t(comm.rank())].waited;
  const std::string bytes(reinterpret_cast<const char*>(waited.data()),
                          waited.size() * sizeof(int64_t));
  const std::vector<std::string> all = comm.all_gather_object(bytes, "waiting");
  if (comm.rank() != 0) return;
  for (size_t r = 1; r < all.size(); ++r) {
    std::vector<int64_t>& of_rank = ranks_[r].waited;
    std::vector<int64_t> received(all[r].size() / sizeof(int64_t));
    std::memcpy(received.data(), all[r].data(), all[r].size());
    of_rank = std::move(received);
  }
}

std::vector<double> StageMeter::waiting(const std::vector<StepRecord>& steps) const {
  std::vector<double> medians;
  for (const Rank& rank : ranks_) {
    std::vector<double> seconds;
    for (size_t i = 0; i < std::min(steps.size(), rank.waited.size()); ++i)
      seconds.push_back(std::min(double(rank.waited[i]) * 1e-9, steps[i].seconds));
    medians.push_back(median(seconds));
  }
  return medians;
}

}  // namespace zl::cli
