#include <algorithm>
#include <functional>

#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Cell = std::function<std::string(const StagePlan&)>;

void row(TextTable& table, const std::vector<StagePlan>& plans, const std::string& title,
         const Cell& cell) {
  std::vector<std::string> cells = {title};
  for (const StagePlan& p : plans) cells.push_back(cell(p));
  table.row(std::move(cells));
}

int64_t find(const StagePlan& p, MemoryUse use, int64_t MemoryRow::*column) {
  for (const MemoryRow& r : p.memory)
    if (r.pool == Pool::device && r.use == use) return r.*column;
  return 0;
}

int64_t rest_total(const StagePlan& p, Pool pool) {
  int64_t sum = 0;
  for (const MemoryRow& r : p.memory)
    if (r.pool == pool) sum += r.predicted_rest;
  return sum;
}

// [B] that the fullest moment takes, initialisation included.
int64_t need(const StagePlan& p) { return std::max(p.peak_total, p.init_peak_total); }

int64_t sent(const StagePlan& p) {
  int64_t bytes = 0;
  for (const TrafficRow& r : p.traffic) bytes += r.predicted_sent;
  return bytes;
}

std::string fit(const StagePlan& p, int64_t limit) {
  if (p.out_of_memory && p.out_of_memory->pool == Pool::host) return "no, too much for the host";
  if (!p.out_of_memory) return "yes, " + human_bytes(limit - need(p)) + " left";
  return "no, " + human_bytes(need(p) - limit) + " short";
}

// The stages stand in the order of what they keep, so the first that fits sends the least.
std::string advice(const std::vector<StagePlan>& plans, const TrainingSpec& spec) {
  if (spec.device_memory == 0)
    return "Nothing was judged to fit or not: --device-memory SIZE says what a rank has. The "
           "smallest is " +
           std::string(name(std::ranges::min_element(plans, {}, need)->stage)) + ".\n";
  for (const StagePlan& p : plans) {
    if (p.out_of_memory) continue;
    const std::string which = name(p.stage);
    if (p.stage == StageKind::zero3)
      return "Take zero3: it is the only one listed that fits, and it sends half as much again as "
             "the others.\n";
    return "Take " + which + ": it is the first that fits, and no later stage sends less.\n";
  }
  const StagePlan& smallest = *std::ranges::min_element(plans, {}, need);
  return "No stage fits. The smallest, " + std::string(name(smallest.stage)) + ", needs " +
         human_bytes(need(smallest)) +
         ". Try more ranks, a smaller micro-batch (--set train_micro_batch_size_per_gpu=1), or "
         "recomputation (--set zerolab.recompute=true).\n";
}

}  // namespace

std::string plan_text(const std::vector<StagePlan>& plans, const TrainingSpec& spec,
                      const std::string& model) {
  const OptimizerBytes state = optimizer_bytes(spec.config.optimizer, spec.config.precision);
  const int64_t e = size_of(spec.config.precision),
                g = size_of(spec.config.grad_accum_dtype.value_or(spec.config.precision));
  std::string text =
      str(model, ": ", with_commas(spec.model.parameters()), " parameters, ", spec.ranks,
          spec.ranks == 1 ? " rank" : " ranks", ", ", precision_name(spec.config.precision), "; B ",
          spec.config.micro_batch, " × A ", spec.config.accumulation, ", windows of ",
          spec.window ? spec.window : spec.model.block_size, " tokens",
          spec.device == DeviceKind::cuda ? "; as on GPUs" : "",
          spec.transport == Transport::nccl ? " with NCCL" : "", "\n");
  text += str("model states without sharding: ", e + g + state.state + state.master,
              " bytes per parameter = parameter ", e, " + gradient ", g, " + optimizer ",
              state.state, state.master ? str(" + master weights ", state.master) : "", "\n\n");
  TextTable table;
  std::vector<std::string> head = {"rank 0"};
  for (const StagePlan& p : plans) head.push_back(name(p.stage));
  table.row(head);
  for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::master_weights, MemoryUse::gradient,
                              MemoryUse::optimizer_state})
    if (std::ranges::any_of(plans, [&](const StagePlan& p) {
          return find(p, use, &MemoryRow::predicted_rest) != 0;
        }))
      row(table, plans, std::string("  ") + name(use), [&](const StagePlan& p) {
        return human_bytes(find(p, use, &MemoryRow::predicted_rest));
      });
  row(table, plans, "at rest",
      [](const StagePlan& p) { return human_bytes(rest_total(p, Pool::device)); });
  row(table, plans, "  parameter, at its peak", [](const StagePlan& p) {
    return human_bytes(find(p, MemoryUse::parameter, &MemoryRow::predicted_peak));
  });
  row(table, plans, "  gradient, at its peak", [](const StagePlan& p) {
    return human_bytes(find(p, MemoryUse::gradient, &MemoryRow::predicted_peak));
  });
  row(table, plans, "  activation, at its peak", [](const StagePlan& p) {
    return human_bytes(find(p, MemoryUse::activation, &MemoryRow::predicted_peak));
  });
  row(table, plans, "  workspace, at its peak", [](const StagePlan& p) {
    return human_bytes(find(p, MemoryUse::workspace, &MemoryRow::predicted_peak));
  });
  row(table, plans, "peak of a step", [](const StagePlan& p) { return human_bytes(p.peak_total); });
  if (std::ranges::any_of(plans, [](const StagePlan& p) { return p.peak_host > 0; })) {
    row(table, plans, "on the host, at rest",
        [](const StagePlan& p) { return human_bytes(rest_total(p, Pool::host)); });
    row(table, plans, "on the host, peak of a step",
        [](const StagePlan& p) { return human_bytes(p.peak_host); });
  }
  row(table, plans, "sent per step", [](const StagePlan& p) { return human_bytes(sent(p)); });
  if (spec.device_memory > 0)
    row(table, plans, "fits " + human_bytes(spec.device_memory),
        [&](const StagePlan& p) { return fit(p, spec.device_memory); });
  return text + table.text() + "\n" + advice(plans, spec);
}

}  // namespace zl::cli
