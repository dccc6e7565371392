#include "stages/steady_state.h"

#include <algorithm>
#include <numeric>

#include "tensor/kernels.h"

namespace zl {
namespace {

void add_calls(CommunicationLog& log, const SteadyInput& in, const UnitCall& call, int64_t full) {
  const bool all = call.among == Among::all, intra = call.among == Among::intra;
  const int64_t node = in.options.ranks_per_node, n = all || intra ? full : full / node;
  const int ranks = all ? in.ranks : int(intra ? node : in.ranks / node);
  const char* group = all ? "" : intra ? "intra" : "inter";
  if (call.bits == 0) {
    const Dtype type =
        call.purpose == Purpose::gradient ? communication_type(in.options) : in.options.precision;
    log.add(call.collective, call.purpose, n, n * size_of(type), ranks, group);
    return;
  }
  // Codes fill whole bytes. Each row is a shard, and its groups have an fp32 scale each.
  const int64_t row = std::max<int64_t>(1, full / in.ranks), codes = n * call.bits / 8,
                scales = n / row * ((row + UnitCall::kScaleGroup - 1) / UnitCall::kScaleGroup);
  log.add(call.collective, call.purpose, codes, codes, ranks, group);
  log.add(call.collective, Purpose::scales, scales, 4 * scales, ranks, group);
}

// [n] One per rank; in reproducible mode one per block of squares, and one per micro-batch.
void add_numbers(CommunicationLog& log, const SteadyInput& in) {
  const Options& o = in.options;
  const int64_t norms =
                    o.reproducible ? in.elements(Part::full) / kernel::kSquaresBlock : in.shards(),
                losses = o.reproducible ? o.accumulation * in.ranks : in.ranks;
  log.add(Collective::all_gather, Purpose::norm, norms, norms * 8, in.shards(),
          in.shards() < in.ranks ? "intra" : "");
  log.add(Collective::all_gather, Purpose::loss, losses, losses * 8, in.ranks);
  log.add(Collective::all_gather, Purpose::check, in.ranks, int64_t(in.ranks) * 8, in.ranks);
}

}  // namespace

int64_t calls_per_step(const SteadyInput& in, const UnitCall& call, size_t unit, size_t first) {
  if (call.per == Per::forward) return in.options.accumulation;
  if (call.per == Per::backward) return unit > 0 && unit < first ? in.options.accumulation : 0;
  if (call.per == Per::never || in.units[unit] == 0) return 0;
  const bool each = in.options.reproducible && call.purpose == Purpose::gradient;
  return call.per == Per::micro_batch || each ? in.options.accumulation : 1;
}

int64_t SteadyInput::elements(Part part) const {
  const int64_t full = std::accumulate(units.begin(), units.end(), int64_t(0));
  return part == Part::full         ? full
         : part == Part::shard      ? full / shards()
         : part == Part::node_shard ? full / options.ranks_per_node
                                    : 0;
}

// Between the forward and the backward pass of a block, the blocks after it run twice: it stays if
// they are few, and if all the blocks that then stay fit. Both conditions are easier for later
// blocks, so the last ones stay.
size_t first_kept_block(const std::vector<int64_t>& units, const Overlap& o) {
  size_t first = units.size();
  for (int64_t after = 0, kept; first > 1; --first, after = kept) {
    kept = after + units[first - 1];
    if (2 * after >= o.max_reuse_distance || units[0] + kept > o.max_live_parameters) break;
  }
  return first;
}

bool reduces_every_micro_batch(const Options& o) {
  return o.reproducible || std::ranges::any_of(file_of(o.stage).calls, [](const UnitCall& call) {
           return call.purpose == Purpose::gradient && call.per == Per::micro_batch;
         });
}

SteadyBytes steady_bytes(const SteadyInput& in) {
  const StageFile& stage = file_of(in.options.stage);
  const int64_t element = size_of(in.options.precision);
  return {.parameter = (in.elements(stage.parameter) + in.elements(stage.secondary)) * element,
          .gradient = in.elements(stage.gradient) * size_of(gradient_type(in.options)),
          .optimizer_elements = in.elements(stage.optimizer)};
}

CommunicationLog steady_traffic(const SteadyInput& in) {
  CommunicationLog log;
  const size_t first_kept = first_kept_block(in.units, in.options.overlap);
  for (const UnitCall& call : file_of(in.options.stage).calls)
    for (size_t unit = 0; unit < in.units.size(); ++unit)
      for (int64_t t = calls_per_step(in, call, unit, first_kept); t > 0; --t)
        add_calls(log, in, call, in.units[unit]);
  add_numbers(log, in);
  return log;
}

}  // namespace zl
