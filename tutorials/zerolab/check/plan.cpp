// The collectives that a step must make, by system.
//
// fully_shard of PyTorch 2.15 (fsdp/_fully_shard): a unit is all-gathered before its forward pass,
// and again before its backward pass if forward has resharded it, which root does not; gradients
// are reduce-scattered unit by unit in each micro-batch. DistributedDataParallel (reducer.cpp):
// all-reduces of buckets of 1 MiB and then 25 MiB, with the last micro-batch only under no_sync().

#include "tutorials/zerolab/check/plan.h"

#include <algorithm>
#include <deque>

#include "stages/predict/closed_form.h"
#include "stages/steady_state.h"
#include "stages/variants/groups.h"
#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

std::string type_of(const CheckedModel& model, const Config& config) {
  return model.dtype.empty() ? name(config.precision) : model.dtype;
}
std::string reduced_type(const CheckedModel& model, const Config& config) {
  const bool own = config.communication_data_type || config.grad_accum_dtype;
  return own || model.dtype.empty() ? name(communication_type(config)) : model.dtype;
}

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

TrafficPlan stage_plan(const CheckedModel& model, const Config& config, int ranks,
                       const char* stage) {
  Options options = config;
  options.stage = StageKind(stage);
  options = with_groups(options, ranks);
  const std::vector<int64_t> sizes = our_sizes(model, ranks, options);
  const SteadyInput in{options, ranks, sizes};
  const size_t first_kept = first_kept_block(sizes, options.overlap);
  const int node = int(std::max<int64_t>(1, options.ranks_per_node));
  TrafficPlan plan;
  for (const UnitCall& call : file_of(options.stage).calls)
    for (size_t unit = 0; unit < sizes.size(); ++unit) {
      const bool inter = call.among == Among::inter, parameter = call.purpose == Purpose::parameter;
      const PlannedCall one{name(call.collective),
                            call.purpose,
                            inter ? sizes[unit] / node : sizes[unit],
                            parameter ? type_of(model, config) : reduced_type(model, config),
                            model.units[unit].name,
                            call.among == Among::all ? ranks
                            : inter                  ? ranks / node
                                                     : node};
      plan.calls.insert(plan.calls.end(), size_t(calls_per_step(in, call, unit, first_kept)), one);
    }
  const CommunicationLog log = steady_traffic(in);
  for (const auto& [key, row] : log.rows())
    if (key.purpose == Purpose::norm || key.purpose == Purpose::loss)
      plan.calls.push_back(
          {name(key.collective), key.purpose, row.elements, "f64", name(key.purpose), row.ranks});
  return plan;
}

// ---- PyTorch -----------------------------------------------------------------------------------

TrafficPlan torch_ddp(const CheckedModel& model, const Config& config, int ranks) {
  std::vector<CheckedModel::Parameter> all;
  for (const auto& unit : model.units)
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  TrafficPlan plan;
  const std::string type = reduced_type(model, config);
  const int64_t bytes = type == "f32" ? 4 : 2;
  bool closed = true;
  for (size_t i = all.size(); i-- > 0;) {
    if (closed)
      plan.calls.push_back({"all_reduce", Purpose::gradient, 0, type,
                            str("bucket ", plan.calls.size()), ranks, true});
    plan.calls.back().elements += all[i].numel();
    closed = plan.calls.back().elements * bytes >= (plan.calls.size() == 1 ? 1 << 20 : 25 << 20);
  }
  return plan;
}

TrafficPlan fully_sharded(const CheckedModel& model, const Config& config, int ranks,
                          bool reshard) {
  TrafficPlan plan;
  int64_t all = 0;
  for (int64_t a = 0; a < config.accumulation; ++a)
    for (const auto& unit : model.units) {
      const int64_t n = sizes_of(unit, ranks, false).rows;
      all += a == 0 ? n : 0;
      const int gathers = reshard && unit.name != "root" ? 2 : 1;
      plan.calls.insert(
          plan.calls.end(), size_t(gathers),
          {"all_gather", Purpose::parameter, n, type_of(model, config), unit.name, ranks});
      plan.calls.push_back(
          {"reduce_scatter", Purpose::gradient, n, reduced_type(model, config), unit.name, ranks});
    }
  if (all > model.numel())
    plan.notes.push_back(
        str("padding: fully_shard pads the first dimension of each parameter to a multiple of ",
            ranks, ", so ", with_commas(all - model.numel()), " of ", with_commas(all),
            " elements are padding"));
  return plan;
}

// ---- DeepSpeed 0.19.8 --------------------------------------------------------------------------

// [n] Each of them padded to a multiple of the ranks.
int64_t padded_each(const std::vector<int64_t>& sizes, int ranks) {
  int64_t sum = 0;
  for (const int64_t n : sizes) sum += round_up(n, ranks);
  return sum;
}

// In buckets of reduce_bucket_size, but for DeepSpeed's default an absent key means 5e8.
void add_buckets(TrafficPlan& plan, const char* collective, int64_t sum, const std::string& type,
                 const Config& config, int ranks) {
  const int64_t bucket = config.reduce_bucket_size > 1 ? config.reduce_bucket_size : 500'000'000;
  for (int64_t left = sum; left > 0; left -= bucket)
    plan.calls.push_back(
        {collective, Purpose::gradient, std::min(left, bucket), type, "bucket", ranks, true});
}

const PlannedCall norm_of(int ranks) {
  return {"all_reduce", Purpose::norm, 1, "f32", "norm", ranks};
}

// stage_1_and_2.py: all gradients are one flat group, padded to 2 N; each rank all-reduces all of
// it, and all-gathers the updated parameters once.
TrafficPlan deepspeed_flat(const CheckedModel& model, const Config& config, int ranks,
                           bool stage_2) {
  TrafficPlan plan;
  for (int64_t a = 0; a < (stage_2 ? config.accumulation : 1); ++a)
    add_buckets(plan, "all_reduce", model.numel(), reduced_type(model, config), config, ranks);
  plan.calls.push_back(norm_of(ranks));
  plan.calls.push_back({"all_gather", Purpose::parameter, round_up(model.numel(), 2 * ranks),
                        type_of(model, config), "flat", ranks});
  return plan;
}

// stage3.py: each parameter is padded to a multiple of N. Small ones stay unsharded, and are
// gathered after the update; the others are gathered for forward, and for backward unless
// max_reuse_distance keeps them.
TrafficPlan deepspeed_3(const CheckedModel& model, const Config& config, int ranks) {
  TrafficPlan plan;
  const int64_t threshold = config.persistence_threshold.value_or(100'000);
  std::vector<int64_t> every, small, large_of_units;
  for (const auto& unit : model.units) {
    large_of_units.push_back(0);
    for (const auto& p : unit.parameters) {
      every.push_back(p.numel());
      if (p.numel() <= threshold)
        small.push_back(p.numel());
      else
        large_of_units.back() += round_up(p.numel(), ranks);
    }
  }
  Overlap overlap = config.overlap;
  const Overlap ours;
  if (overlap.max_reuse_distance == ours.max_reuse_distance)
    overlap.max_reuse_distance = 1'000'000'000;
  if (overlap.max_live_parameters == ours.max_live_parameters)
    overlap.max_live_parameters = 1'000'000'000;
  const size_t kept = first_kept_block(large_of_units, overlap);
  const bool all_kept = kept == 1;
  for (int64_t a = 0; a < config.accumulation; ++a) {
    for (size_t u = 0; u < model.units.size(); ++u) {
      const int times = !all_kept && u < kept ? 2 : 1;
      for (int i = 0; i < times && large_of_units[u] > 0; ++i)
        plan.calls.push_back({"all_gather", Purpose::parameter, large_of_units[u],
                              type_of(model, config), model.units[u].name, ranks, true});
    }
    add_buckets(plan, "reduce_scatter", padded_each(every, ranks), reduced_type(model, config),
                config, ranks);
  }
  for (const int64_t n : small)
    plan.calls.push_back({"all_gather", Purpose::parameter, round_up(n, ranks),
                          type_of(model, config), "small", ranks, true});
  plan.calls.push_back(norm_of(ranks));
  return plan;
}

}  // namespace

const std::vector<SystemKind>& system_kinds() {
  static const std::vector<SystemKind> kinds = {
      {"ddp", [](const auto&... in) { return stage_plan(in..., "ddp"); }},
      {"zero1", [](const auto&... in) { return stage_plan(in..., "zero1"); }},
      {"zero2", [](const auto&... in) { return stage_plan(in..., "zero2"); }},
      {"zero3", [](const auto&... in) { return stage_plan(in..., "zero3"); }},
      {"hsdp", [](const auto&... in) { return stage_plan(in..., "hsdp"); }},
      {"torch-ddp", torch_ddp},
      {"fsdp2", [](const auto&... in) { return fully_sharded(in..., true); }},
      {"fsdp2-no-reshard", [](const auto&... in) { return fully_sharded(in..., false); }},
      {"deepspeed-1", [](const auto&... in) { return deepspeed_flat(in..., false); }},
      {"deepspeed-2", [](const auto&... in) { return deepspeed_flat(in..., true); }},
      {"deepspeed-3", deepspeed_3}};
  return kinds;
}

const SystemKind& read_system(const std::string& name) {
  std::string known;
  for (const SystemKind& kind : system_kinds()) {
    if (name == kind.name) return kind;
    known += str(known.empty() ? "" : ", ", kind.name);
  }
  throw InputError(str("'", name, "' is none of ", known));
}

}  // namespace zl::cli
