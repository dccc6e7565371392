#include "stages/memory_model.h"

#include <algorithm>
#include <numeric>

namespace zl {
namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

int64_t largest_block(const std::vector<int64_t>& units) {
  return units.size() > 1 ? *std::max_element(units.begin() + 1, units.end()) : 0;
}

// [n] The most that unreduced gradients take at one time in stages 2 and 3. Root's exists from the first mark of the
// walk to the last. Blocks come one by one from the last to the first and leave together when their bucket is full.
int64_t peak_unreduced(const std::vector<int64_t>& units, int64_t bucket) {
  int64_t waiting = 0, peak = units[0];
  for (size_t i = units.size(); i-- > 1;) {
    waiting += units[i];
    peak = std::max(peak, units[0] + waiting);
    if (waiting >= bucket) waiting = 0;
  }
  return peak;
}

void add_traffic(CommunicationLog& log, Collective collective, Purpose purpose, const std::vector<int64_t>& sizes, const PredictionInput& in) {
  for (const int64_t n : sizes) log.add(collective, purpose, n, n * in.element_bytes, in.ranks);
}

CommunicationLog traffic(const PredictionInput& in) {
  CommunicationLog log;
  const Collective reduction = in.stage == StageKind::ddp ? Collective::all_reduce : Collective::reduce_scatter;
  const bool every_micro_batch = in.stage == StageKind::zero2 || in.stage == StageKind::zero3;
  for (int64_t a = 0; a < (every_micro_batch ? in.micro_batches : 1); ++a) add_traffic(log, reduction, Purpose::gradient, in.units, in);
  if (in.stage == StageKind::zero1 || in.stage == StageKind::zero2)
    add_traffic(log, Collective::all_gather, Purpose::parameter, in.units, in);
  if (in.stage == StageKind::zero3)
    for (int64_t a = 0; a < in.micro_batches; ++a) {  // forward: all; backward: root is still there
      add_traffic(log, Collective::all_gather, Purpose::parameter, in.units, in);
      add_traffic(log, Collective::all_gather, Purpose::parameter, {in.units.begin() + 1, in.units.end()}, in);
    }
  for (const Purpose purpose : {Purpose::norm, Purpose::loss})  // one double per rank
    log.add(Collective::all_gather, purpose, in.ranks, in.ranks * 8, in.ranks);
  return log;
}

}  // namespace

std::vector<int64_t> padded_unit_sizes(const std::vector<Unit>& units, int ranks) {
  std::vector<int64_t> sizes;
  for (const Unit& u : units) {
    int64_t n = 0;
    for (const Parameter* p : u.parameters) n += round_up(p->numel(), 16);
    sizes.push_back(round_up(n, 16 * ranks));
  }
  return sizes;
}

bool has_closed_formula(MemoryUse use) { return use != MemoryUse::activation && use != MemoryUse::workspace; }

Prediction predict(const PredictionInput& in) {
  const int64_t whole = std::accumulate(in.units.begin(), in.units.end(), int64_t(0)), shard = whole / in.ranks;
  const int64_t parameters = in.stage == StageKind::zero3 ? shard : whole;
  const int64_t gradients = in.stage >= StageKind::zero2 ? shard : whole;
  const int64_t updated = in.stage == StageKind::ddp ? whole : shard;

  Prediction p;
  const auto set = [&](MemoryUse use, int64_t rest, int64_t more_at_peak) {
    p.rest[size_t(use)] = rest;
    p.peak[size_t(use)] = rest + more_at_peak;
  };
  const int64_t gathered = in.stage == StageKind::zero3 ? in.units[0] + largest_block(in.units) : 0;
  const int64_t unreduced = in.stage >= StageKind::zero2 ? peak_unreduced(in.units, in.reduce_bucket_size) : 0;
  set(MemoryUse::parameter, parameters * in.element_bytes, gathered * in.element_bytes);
  set(MemoryUse::gradient, gradients * in.element_bytes, unreduced * in.element_bytes);
  set(MemoryUse::optimizer_state, updated * in.optimizer.state, 0);
  set(MemoryUse::master_weights, updated * in.optimizer.master, 0);
  set(MemoryUse::communication, 0, in.ranks * 8);  // the norm, then the loss: one double per rank
  p.traffic = traffic(in);
  return p;
}

ModelStates model_states(StageKind stage, double parameters, int ranks, int64_t element_bytes, OptimizerBytes optimizer) {
  const double shard = parameters / ranks;
  return {.parameter = double(element_bytes) * (stage == StageKind::zero3 ? shard : parameters),
          .gradient = double(element_bytes) * (stage >= StageKind::zero2 ? shard : parameters),
          .optimizer = double(optimizer.state + optimizer.master) * (stage == StageKind::ddp ? parameters : shard)};
}

double sent_elements(StageKind stage, double parameters, int ranks, int64_t micro_batches) {
  const double once = parameters * double(ranks - 1) / ranks, all = once * double(micro_batches);
  switch (stage) {
    case StageKind::ddp: return 2 * once;        // reduce-scatter and all-gather of an all-reduce
    case StageKind::zero1: return 2 * once;
    case StageKind::zero2: return all + once;
    case StageKind::zero3: return 3 * all;
  }
  return 0;
}

}  // namespace zl
