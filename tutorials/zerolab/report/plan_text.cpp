#include <algorithm>

#include "stages/predict/plan.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_table.h"

namespace zl::cli {
namespace {

// [B] the peak, initialisation included.
int64_t need(const StagePlan& p) { return std::max(p.peak_total, p.init_peak_total); }

// [B] per step.
int64_t sent(const StagePlan& p) { return sent_bytes(p.traffic, &TrafficRow::predicted_sent); }

// [B] per step.
int64_t moved(const StagePlan& p, Move move) {
  return moved_bytes(p.moves, move, &MoveRow::predicted_bytes);
}

// Those that a stage makes.
std::vector<Move> moves_of(const std::vector<StagePlan>& plans) {
  std::vector<Move> moves;
  for (int i = 0; i < kMoves; ++i)
    if (std::ranges::any_of(plans, [i](const StagePlan& p) { return moved(p, Move(i)) > 0; }))
      moves.push_back(Move(i));
  return moves;
}

std::string fit(int64_t needed, int64_t limit) {
  if (needed <= limit) return "yes, " + human_bytes(limit - needed) + " left";
  return "no, " + human_bytes(needed - limit) + " short";
}

// "+50,816 B of gradients, +50,816 B of parameters"; what a setting does not change is left out.
std::string cost_text(const SettingCost& cost) {
  std::string text;
  const auto add = [&](int64_t bytes, const char* what) {
    if (bytes != 0)
      text += str(text.empty() ? "" : ", ", bytes > 0 ? "+" : "", with_commas(bytes), " B ", what);
  };
  add(cost.rest, "in steady state");
  add(cost.gradient, "of gradients");
  add(cost.parameter, "of parameters");
  add(cost.communication, "of communication");
  add(cost.sent, "sent per step");
  if (text.empty()) return "no bytes";
  return text + "; the peak of a step " +
         (cost.peak_total == 0 ? "is the same"
                               : str("changes by ", cost.peak_total > 0 ? "+" : "",
                                     with_commas(cost.peak_total), " B"));
}

// A line for each stage about what a setting costs, from predictions with and without it.
std::string cost_lines(const std::vector<StagePlan>& plans, const std::string& setting,
                       const char* words) {
  std::string text;
  for (const StagePlan& p : plans)
    for (const SettingCost& cost : p.costs)
      if (cost.setting == setting)
        text += str(name(p.stage), ", ", words, ": ", cost_text(cost), "\n");
  return text.empty() ? "" : text + "\n";
}

}  // namespace

// Later stages keep less, and usually send no less.
std::string plan_advice(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec) {
  if (spec.device_memory == 0 && spec.host_memory == 0)
    return "To see which stages fit, give --device-memory SIZE, the memory of one rank. The "
           "smallest "
           "is " +
           std::string(name(std::ranges::min_element(plans, {}, need)->stage)) + ".\n";
  for (const StagePlan& p : plans) {
    if (p.out_of_memory) continue;
    const std::string which = name(p.stage);
    if (p.stage == StageKind::zero3 && plans.back().stage == p.stage)
      return str("Take zero3: it is the only one listed that fits",
                 spec.engine.overlap.max_reuse_distance > 0 || spec.engine.reproducible
                     ? ".\n"
                     : ", and it sends half as much again as the others.\n");
    const auto sends_less = [&](const StagePlan& other) {
      return p.stage < other.stage && !other.out_of_memory && sent(other) < sent(p);
    };
    if (const auto less = std::ranges::find_if(plans, sends_less); less != plans.end())
      return "Take " + which + ", the first that fits, or " + name(less->stage) +
             ", which sends less" +
             (bits_of(less->stage) == VariantBits::lossy ? ", in fewer bits: its results differ"
                                                         : "") +
             ".\n";
    return "Take " + which + ": it is the first that fits, and no later stage sends less.\n";
  }
  const StagePlan& smallest = *std::ranges::min_element(plans, {}, need);
  return "No stage fits. The smallest, " + std::string(name(smallest.stage)) + ", needs " +
         human_bytes(need(smallest)) +
         (smallest.peak_host > 0 ? " and " + human_bytes(smallest.peak_host) + " of host memory"
                                 : "") +
         ". Try more ranks, a smaller micro-batch (--set train_micro_batch_size_per_gpu=1), or "
         "activation checkpointing (--set zerolab.recompute=full).\n";
}

namespace {

// What waits for backward, by the closed formulas; "" where no input is checkpointed.
std::string checkpointed_line(const TrainingSpec& spec) {
  const PredictionInput in = prediction_input(spec);
  if (in.kept_inputs.empty()) return "";
  CommunicationLog log;
  add_input_gathers(log, in);
  int64_t sent = 0;
  for (const auto& [key, traffic] : log.rows()) sent += traffic.sent_bytes();
  std::string text =
      str("activation checkpointing: ", plural(int64_t(in.kept_inputs.size()), "input"),
          " of a micro-batch, ", with_commas(kept_bytes(in)), " B of a rank, ",
          in.kept_inputs.size() == 1 ? "waits" : "wait", " for backward on the ",
          in.options.cpu_checkpointing ? "host" : "device");
  if (const int64_t bytes = returned_bytes(in); bytes > 0)
    text += str("; one that comes back takes ", with_commas(bytes), " B");
  if (sent > 0) text += str("; a rank sends ", with_commas(sent), " B per micro-batch for them");
  return text + "\n";
}

// The run, and what its model states take in all.
std::string head(const GptTrainingSpec& spec, const std::string& model) {
  const OptimizerBytes state = optimizer_bytes(spec.engine.optimizer, spec.engine.precision);
  const int64_t e = size_of(spec.engine.precision), g = size_of(gradient_type(spec.engine));
  std::string text = str(model, ": ", with_commas(spec.model.parameters()), " parameters, ",
                         plural(spec.ranks, "rank"),
                         compute_threads() > 1 ? str(" of ", compute_threads(), " threads") : "",
                         ", ", precision_name(spec.engine.precision), "; B ", spec.micro_batch,
                         " × A ", spec.engine.accumulation, ", sequences of ",
                         spec.window ? spec.window : spec.model.block_size, " tokens",
                         spec.engine.reproducible ? "; reproducible sums" : "",
                         spec.device == DeviceKind::cuda ? "; as on GPUs"
                         : spec.reference                ? "; as on the reference kernels"
                                                         : "",
                         spec.transport == Transport::nccl  ? " with NCCL"
                         : spec.transport == Transport::mpi ? "; with MPI"
                                                            : "",
                         "\n");
  return text + str("model states without sharding: ", e + g + state.state + state.master,
                    " bytes per parameter = parameter ", e, " + gradient ", g, " + optimizer ",
                    state.state, state.master ? str(" + master weights ", state.master) : "", "\n",
                    checkpointed_line(spec), "\n");
}

}  // namespace

std::string plan_text(const std::vector<StagePlan>& plans, const GptTrainingSpec& spec,
                      const std::string& model) {
  const std::string text = head(spec, model);
  StageTable<StagePlan> table(plans, "rank 0");
  const auto bytes = [&](MemoryUse use, int64_t MemoryRow::*column) {
    return [=](const StagePlan& p) { return bytes_of(p.memory, Pool::device, use, column); };
  };
  const auto row = [&](const std::string& title, const auto& cell) {
    table.row(title, [&](const StagePlan& p) { return human_bytes(cell(p)); });
  };
  for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::master_weights, MemoryUse::gradient,
                              MemoryUse::optimizer_state, MemoryUse::communication})
    if (const auto cell = bytes(use, &MemoryRow::predicted_rest); std::ranges::any_of(plans, cell))
      row(std::string("  ") + name(use), cell);
  const auto at_rest = [](Pool pool) {
    return
        [=](const StagePlan& p) { return total_bytes(p.memory, pool, &MemoryRow::predicted_rest); };
  };
  row("steady state", at_rest(Pool::device));
  for (const MemoryUse use :
       {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::activation, MemoryUse::workspace})
    row(str("  ", name(use), ", at its peak"), bytes(use, &MemoryRow::predicted_peak));
  row("peak of a step", [](const StagePlan& p) { return p.peak_total; });
  if (std::ranges::any_of(plans, [](const StagePlan& p) { return p.peak_host > 0; })) {
    row("on the host, steady state", at_rest(Pool::host));
    row("on the host, peak of a step", [](const StagePlan& p) { return p.peak_host; });
  }
  if (std::ranges::any_of(plans, at_rest(Pool::disk))) row("on disk", at_rest(Pool::disk));
  row("sent per step", sent);
  for (const Move move : moves_of(plans))
    row(str(name(move), " per step"), [move](const StagePlan& p) { return moved(p, move); });
  row("a checkpoint on disk", [](const StagePlan& p) { return p.checkpoint.disk; });
  row("  on the host, wait or still", [](const StagePlan& p) { return p.checkpoint.buffer; });
  row("  on the host, snapshot", [](const StagePlan& p) { return p.checkpoint.snapshot; });
  if (spec.device_memory > 0)
    table.row("fits " + human_bytes(spec.device_memory),
              [&](const StagePlan& p) { return fit(need(p), spec.device_memory); });
  if (spec.host_memory > 0)
    table.row("fits " + human_bytes(spec.host_memory) + " of the host",
              [&](const StagePlan& p) { return fit(p.peak_host, spec.host_memory); });
  return text + table.text() + "\n" + cost_lines(plans, "overlap", "overlap and prefetch") +
         cost_lines(plans, "reproducible", "reproducible sums");
}

}  // namespace zl::cli
