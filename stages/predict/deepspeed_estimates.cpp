#include "stages/predict/deepspeed_estimates.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "stages/predict/closed_form.h"
#include "stages/predict/prediction_rows.h"

namespace zl {
namespace {

constexpr double kBufferFactor = 1.5;  // additional_buffer_factor: DeepSpeed's margin on the host

// As Python's int(a / b) for integers that doubles hold exactly.
int64_t quotient(int64_t a, int64_t b) { return int64_t(double(a) / double(b)); }

Estimate estimate_zero2(const EstimateInput& in, bool offload) {
  const double parameters = double(in.parameters);
  const int64_t gpus = int64_t(in.nodes) * in.ranks_per_node;
  if (offload)
    return {.offload_optimizer = true,
            .node = int64_t(parameters * double(std::max<int64_t>(4 * gpus, 16)) * kBufferFactor),
            .rank = 2 * in.parameters};
  return {.node = int64_t(parameters * 4 * in.ranks_per_node * kBufferFactor),
          .rank = 2 * in.parameters + quotient(18 * in.parameters, gpus)};
}

// The order of the operations is DeepSpeed's: 1 / nodes is rounded.
Estimate estimate_zero3(const EstimateInput& in, Estimate row) {
  const double parameters = double(in.parameters), share = 1.0 / in.nodes;
  const int64_t gpus = int64_t(in.nodes) * in.ranks_per_node, layer = 4 * in.largest_layer;
  const double built = 4.0 * in.ranks_per_node;  // each process builds an fp32 model
  if (!row.offload_optimizer) {
    row.rank = layer + quotient(18 * in.parameters, gpus);
    row.node =
        int64_t((row.zero_init ? double(in.largest_layer) : parameters) * built * kBufferFactor);
    return row;
  }
  const double each = row.offload_param ? 18 : 16;
  row.rank = layer + (row.offload_param ? 0 : quotient(2 * in.parameters, gpus));
  row.node = int64_t(row.zero_init ? parameters * each * share * kBufferFactor
                                   : parameters * std::max(built, each * share) * kBufferFactor);
  return row;
}

std::string format(const char* pattern, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

}  // namespace

EstimateInput estimate_input(Model& model, int ranks, int ranks_per_node) {
  require(ranks_per_node > 0 && ranks % ranks_per_node == 0, ranks, " ranks are no multiple of ",
          ranks_per_node, " ranks per node");
  EstimateInput in{.ranks_per_node = ranks_per_node, .nodes = ranks / ranks_per_node};
  std::map<std::string, int64_t> modules;
  for (const Unit& unit : model.units())
    for (const Parameter* p : unit.parameters) {
      in.parameters += p->numel();
      int64_t& module = modules[p->name.substr(0, p->name.rfind('.'))];
      in.largest_layer = std::max(in.largest_layer, module += p->numel());
    }
  return in;
}

std::vector<Estimate> deepspeed_estimates(StageKind stage, const EstimateInput& in) {
  require(stage == StageKind::zero2 || stage == StageKind::zero3,
          "DeepSpeed has estimates for stages 2 and 3, not for ", name(stage));
  const double most = double(in.parameters) * (18 + 4.0 * in.nodes * in.ranks_per_node);
  require_input(kBufferFactor * most < 9e18, "the estimate for ", in.parameters, " parameters on ",
                in.nodes, " nodes of ", in.ranks_per_node,
                " GPUs is too large to be counted in bytes; try fewer");
  if (stage == StageKind::zero2) return {estimate_zero2(in, true), estimate_zero2(in, false)};
  std::vector<Estimate> rows;
  for (const bool optimizer : {true, false})
    for (const bool param : {true, false})
      for (const bool zero_init : {true, false})
        if (optimizer || !param) rows.push_back(estimate_zero3(in, {param, optimizer, zero_init}));
  return rows;
}

std::string deepspeed_heading(StageKind stage, const EstimateInput& in) {
  const auto millions = [](int64_t n) { return (long long)(double(n) / 1e6); };
  std::string text =
      str("Estimated memory needed for params, optim states and gradients for a:\n"
          "HW: Setup with ",
          in.nodes, in.nodes > 1 ? " nodes, " : " node, ", in.ranks_per_node,
          in.ranks_per_node > 1 ? " GPUs" : " GPU", " per node.\nSW: Model with ",
          millions(in.parameters), "M total params");
  if (stage == StageKind::zero3)
    text += str(", ", millions(in.largest_layer), "M largest layer params");
  return text + ".\n";
}

std::string deepspeed_titles() { return "  per CPU  |  per GPU |   Options"; }

std::string deepspeed_row(StageKind stage, const Estimate& e) {
  const auto device = [](bool cpu) { return cpu ? "cpu " : "none"; };
  std::string text =
      format(" %7.2fGB | %6.2fGB | ", double(e.node) / (1 << 30), double(e.rank) / (1 << 30));
  if (stage == StageKind::zero3) text += str("offload_param=", device(e.offload_param), ", ");
  text += str("offload_optimizer=", device(e.offload_optimizer));
  if (stage == StageKind::zero3) text += str(", zero_init=", e.zero_init ? 1 : 0);
  return text;
}

ExactStates exact_states(const TrainingSpec& spec, StageKind stage, const Estimate& row,
                         int ranks_per_node) {
  TrainingSpec same = spec;
  same.engine = EngineOptions{};
  same.engine.stage = stage;
  same.engine.precision = Dtype::bf16;
  if (row.offload_optimizer) same.engine.offload_optimizer = OffloadDevice::cpu;
  Prediction p = predict(prediction_input(same));
  if (row.offload_param) {  // the shards are on the host; full parameters stay where they are used
    const size_t use = size_t(MemoryUse::parameter);
    const int64_t shards = std::exchange(p.device.rest[use], 0);
    p.device.peak[use] -= shards;
    p.host.rest[use] += shards;
  }
  ExactStates states;
  for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::master_weights, MemoryUse::gradient,
                              MemoryUse::optimizer_state}) {
    states.rest += p.device.rest_of(use);
    states.peak += p.device.peak_of(use);
    states.node += p.host.rest_of(use) * ranks_per_node;
  }
  return states;
}

}  // namespace zl
