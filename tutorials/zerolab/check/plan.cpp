// The collectives that a step must make, by system.
//
// fully_shard of PyTorch 2.15 (fsdp/_fully_shard): a unit is all-gathered before its forward pass,
// and again before its backward pass if forward has resharded it, which root does not; gradients
// are reduce-scattered unit by unit in each micro-batch. DistributedDataParallel (reducer.cpp):
// all-reduces of buckets of 1 MiB and then 25 MiB, with the last micro-batch only under no_sync().

#include <algorithm>
#include <deque>
#include <utility>

#include "stages/predict/closed_form.h"
#include "stages/steady_state.h"
#include "stages/variants/groups.h"
#include "tensor/error.h"
#include "tutorials/zerolab/check/traffic.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

struct Planner {
  const CheckedModel& model;
  const Config& config;
  int ranks;
  TrafficPlan plan = {};
  bool sums = false;  // the sizes of calls depend on buckets

  std::string type_of(Purpose purpose) const {
    const bool reduced = purpose == Purpose::gradient;
    const bool said = reduced && (config.communication_data_type || config.grad_accum_dtype);
    if (!said && !model.dtype.empty()) return model.dtype;
    return name(reduced ? communication_type(config) : config.precision);
  }
  void call(const std::string& collective, Purpose purpose, int64_t n, const std::string& of,
            int64_t times = 1, int group = 0) {
    if (times == 0 || n == 0) return;
    if (group == 0) group = ranks;
    auto row = std::ranges::find_if(plan.calls, [&](const PlannedCalls& p) {
      return p.is(collective, purpose) && p.elements == n && p.group == group;
    });
    if (row == plan.calls.end())
      row = plan.calls.insert(row, {collective, purpose, n, type_of(purpose), group});
    row->sum_only = sums && !row->number();
    row->planned += times;
    if (std::ranges::find(row->units, of) == row->units.end()) row->units.push_back(of);
  }
  // DeepSpeed's: of reduce_bucket_size, but an absent key means 5e8.
  void buckets(const char* collective, int64_t sum, int64_t times) {
    const int64_t most = config.reduce_bucket_size > 1 ? config.reduce_bucket_size : 500'000'000;
    call(collective, Purpose::gradient, most, "", sum / most * times);
    call(collective, Purpose::gradient, sum % most, "", times);
  }
};

// ---- zerolab -----------------------------------------------------------------------------------

std::vector<int64_t> our_sizes(const CheckedModel& model, int ranks, const Options& options) {
  std::deque<Parameter> parameters;
  std::vector<Unit> units;
  for (const CheckedModel::Unit& from : model.units) {
    Unit& unit = units.emplace_back();
    for (const auto& p : from.parameters) {
      parameters.push_back({.name = p.name, .shape = p.shape});
      unit.parameters.push_back(&parameters.back());
    }
  }
  return padded_unit_sizes(units, ranks, options);
}

void stage_plan(Planner& p, const char* stage) {
  Options options = p.config;
  options.stage = StageKind(stage);
  options = with_groups(options, p.ranks);
  const std::vector<int64_t> sizes = our_sizes(p.model, p.ranks, options);
  const SteadyInput in{options, p.ranks, sizes};
  const size_t first_kept = first_kept_block(sizes, options.overlap);
  const int node = int(std::max<int64_t>(1, options.ranks_per_node));
  p.plan.each = reduces_every_micro_batch(options);
  for (const UnitCall& call : file_of(options.stage).calls)
    for (size_t unit = 0; unit < sizes.size(); ++unit) {
      const bool inter = call.among == Among::inter;
      const int group = call.among == Among::all ? p.ranks : inter ? p.ranks / node : node;
      p.call(name(call.collective), call.purpose, sizes[unit] / (inter ? node : 1),
             p.model.units[unit].name, calls_per_step(in, call, unit, first_kept), group);
    }
  const CommunicationLog log = steady_traffic(in);
  for (const auto& [key, row] : log.rows())
    if (key.purpose == Purpose::norm || key.purpose == Purpose::loss)
      p.call(name(key.collective), key.purpose, row.elements, "", 1, row.ranks);
}

// ---- PyTorch -----------------------------------------------------------------------------------

void torch_ddp(Planner& p) {
  const std::vector<CheckedModel::Parameter> all = p.model.parameters();
  p.plan.each = false;
  p.sums = true;
  const int64_t bytes = p.type_of(Purpose::gradient) == "f32" ? 4 : 2;
  int64_t bucket = 0, most = 1 << 20;  // [n], [B]
  for (size_t i = all.size(); i-- > 0;) {
    bucket += numel(all[i].shape);
    if (i > 0 && bucket * bytes < most) continue;
    p.call("all_reduce", Purpose::gradient, std::exchange(bucket, 0), "");
    most = 25 << 20;
  }
}

void fully_sharded(Planner& p, bool reshard) {
  const int64_t A = p.config.accumulation;
  for (const auto& unit : p.model.units) {
    const int64_t n = sizes_of(unit.parameters, p.ranks).rows;
    p.call("all_gather", Purpose::parameter, n, unit.name,
           reshard && unit.name != "root" ? 2 * A : A);
    p.call("reduce_scatter", Purpose::gradient, n, unit.name, A);
  }
  const auto [exact, rows] = sizes_of(p.model.parameters(), p.ranks);
  if (rows > exact)
    p.plan.note = str("padding: fully_shard pads the first dimension of each parameter for ",
                      p.ranks, " ranks: ", with_commas(rows - exact), " of ", with_commas(rows),
                      " elements are padding");
}

// ---- DeepSpeed 0.19.8 --------------------------------------------------------------------------

// stage_1_and_2.py: all gradients are one flat group, padded to 2 N; each rank all-reduces all of
// it, and all-gathers the updated parameters once.
void deepspeed_flat(Planner& p, bool stage_2) {
  const int64_t all = p.model.numel();
  p.plan.each = stage_2;
  p.sums = true;
  p.buckets("all_reduce", all, stage_2 ? p.config.accumulation : 1);
  p.call("all_reduce", Purpose::norm, 1, "");
  p.call("all_gather", Purpose::parameter, round_up(all, 2 * p.ranks), "flat");
}

// stage3.py: each parameter is padded to a multiple of N. Small ones stay unsharded, and are
// gathered after the update; the others are gathered for forward, and for backward unless
// max_reuse_distance keeps them.
void deepspeed_3(Planner& p) {
  const int64_t A = p.config.accumulation;
  p.sums = true;
  int64_t sum = 0;
  std::vector<int64_t> large;  // of each unit
  for (const auto& unit : p.model.units) {
    large.push_back(0);
    for (const auto& [name, shape] : unit.parameters) {
      const int64_t n = numel(shape), padded = round_up(n, p.ranks);
      const bool small = n <= p.config.persistence_threshold.value_or(100'000);
      sum += padded;
      if (small) p.call("all_gather", Purpose::parameter, padded, "small");
      large.back() += small ? 0 : padded;
    }
  }
  Overlap overlap = p.config.overlap;
  for (const auto limit : {&Overlap::max_reuse_distance, &Overlap::max_live_parameters})
    if (overlap.*limit == Overlap().*limit) overlap.*limit = 1'000'000'000;
  const size_t kept = first_kept_block(large, overlap);
  for (size_t u = 0; u < large.size(); ++u)
    p.call("all_gather", Purpose::parameter, large[u], p.model.units[u].name,
           kept != 1 && u < kept ? 2 * A : A);
  p.buckets("reduce_scatter", sum, A);
  p.call("all_reduce", Purpose::norm, 1, "");
}

}  // namespace

TrafficPlan plan_traffic(const std::string& system, const CheckedModel& model, const Config& config,
                         int ranks) {
  Planner p{model, config, ranks};
  if (system == "torch-ddp")
    torch_ddp(p);
  else if (system == "fsdp2" || system == "fsdp2-no-reshard")
    fully_sharded(p, system == "fsdp2");
  else if (system == "deepspeed-3")
    deepspeed_3(p);
  else if (system == "deepspeed-1" || system == "deepspeed-2")
    deepspeed_flat(p, system == "deepspeed-2");
  else
    stage_plan(p, system.c_str());
  return p.plan;
}

}  // namespace zl::cli
