#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

// [B] of one use on rank 0, by rest or peak; rows that are not listed are zero.
int64_t find(const std::vector<MemoryRow>& rows, Pool pool, MemoryUse use,
             int64_t MemoryRow::*column) {
  for (const MemoryRow& row : rows)
    if (row.rank == 0 && row.pool == pool && row.use == use) return row.*column;
  return 0;
}

bool any_row(const Comparison& c, Pool pool, MemoryUse use, int64_t MemoryRow::*column) {
  for (const StageOutcome& s : c.stages)
    if (find(s.memory, pool, use, column) != 0) return true;
  return false;
}

bool any_host(const Comparison& c) {
  return std::ranges::any_of(
      c.stages, [](const StageOutcome& s) { return !s.out_of_memory && s.peak_host[0] > 0; });
}

using Cell = std::function<std::string(const StageOutcome&)>;

void row(TextTable& table, const Comparison& c, const std::string& title, const Cell& cell) {
  std::vector<std::string> cells = {title};
  for (const StageOutcome& s : c.stages) cells.push_back(s.out_of_memory ? "-" : cell(s));
  table.row(std::move(cells));
}

// The largest difference to the prediction over all ranks and uses of a pool, by rest or peak.
int64_t off_by(const StageOutcome& s, Pool pool, int64_t MemoryRow::*measured,
               int64_t MemoryRow::*predicted) {
  int64_t most = 0;
  for (const MemoryRow& r : s.memory) {
    if (r.pool != pool) continue;
    const int64_t difference = r.*measured - r.*predicted;
    if (std::abs(difference) > std::abs(most)) most = difference;
  }
  return most;
}

std::string signed_bytes(int64_t bytes) {
  return bytes == 0 ? "0 B" : (bytes > 0 ? "+" : "") + std::to_string(bytes) + " B";
}

void memory_rows(TextTable& table, const Comparison& c, Pool pool, int64_t MemoryRow::*measured,
                 int64_t MemoryRow::*predicted) {
  for (int i = 0; i < kMemoryUses; ++i) {
    const MemoryUse use = MemoryUse(i);
    if (any_row(c, pool, use, measured))
      row(table, c, std::string("  ") + name(use),
          [&](const StageOutcome& s) { return human_bytes(find(s.memory, pool, use, measured)); });
  }
  row(table, c, "  off the prediction by",
      [&](const StageOutcome& s) { return signed_bytes(off_by(s, pool, measured, predicted)); });
}

int64_t sent(const StageOutcome& s, int64_t TrafficRow::*column) {
  int64_t bytes = 0;
  for (const TrafficRow& r : s.traffic) bytes += r.*column;
  return bytes;
}

// Gradients and parameters sent, in the paper's unit: (N-1)/N times the model.
std::string in_model_units(const StageOutcome& s, const Comparison& c, const TrainingSpec& spec) {
  if (spec.ranks == 1) return "0 Ψ";
  double bytes = 0;
  for (const TrafficRow& r : s.traffic)
    if (r.purpose == Purpose::parameter || r.purpose == Purpose::gradient) bytes += double(r.sent);
  const double unit =
      double(c.parameters) * double(size_of(spec.config.precision)) * (spec.ranks - 1) / spec.ranks;
  return digits(bytes / unit, 4) + " Ψ";
}

std::string equality(const StageOutcome& s, bool promised) {
  if (s.stage == s.promised_equal_to) return "-";  // the one that others are compared with
  if (s.bitwise_equal) return std::string("= ") + name(s.promised_equal_to);
  return std::string(promised ? "NOT " : "not ") + name(s.promised_equal_to);
}

// The least and the most that a rank waits in a step [ms]. The one that waits least is the one that
// the others wait for.
std::string waiting(const StageOutcome& s) {
  if (s.waiting.empty()) return "-";
  const auto [least, most] = std::minmax_element(s.waiting.begin(), s.waiting.end());
  return str(digits(1e3 * *least, 2), " (", least - s.waiting.begin(), ") to ",
             digits(1e3 * *most, 2), " (", most - s.waiting.begin(), ")");
}

std::string verdict(const Comparison& c) {
  if (!c.any_fits())
    return "No stage fits its memory. Try more ranks, a smaller micro-batch, recomputation or a "
           "larger limit.\n";
  if (c.ok() && !c.bits_promised)
    return "Every byte of memory and traffic is as predicted. NCCL adds as it likes "
           "(zerolab.ordered is false), so that stages "
           "promise to be equal but for rounding; no bit was demanded.\n";
  if (c.ok())
    return "Every stage has the bits that it promises, and every byte of memory and traffic is as "
           "predicted.\n";
  std::string wrong;
  for (const StageOutcome& s : c.stages) {
    if (s.out_of_memory) continue;
    if (c.bits_promised && !s.bitwise_equal)
      wrong += str(name(s.stage), " does not have the bits of ", name(s.promised_equal_to), ". ");
    if (!s.predictions_exact()) wrong += str(name(s.stage), " differs from its prediction. ");
  }
  return "CHECK FAILED: " + wrong + "\n";
}

std::string unfitting(const Comparison& c) {
  std::string text;
  for (const StageOutcome& s : c.stages)
    if (const auto& o = s.out_of_memory)
      text += str(name(s.stage), " does not fit: rank ", o->rank, " asked for ",
                  human_bytes(o->asked), o->pool == Pool::host ? " of host memory" : "", " in ",
                  o->phase, o->unit.empty() ? "" : ", unit " + o->unit, ".\n");
  return text;
}

}  // namespace

std::string comparison_text(const Comparison& c, const TrainingSpec& spec) {
  TextTable table;
  std::vector<std::string> head = {str(with_commas(c.parameters), " parameters, ", spec.ranks,
                                       spec.ranks == 1 ? " rank" : " ranks",
                                       spec.device == DeviceKind::cuda ? " on GPUs" : "")};
  for (const StageOutcome& s : c.stages) head.push_back(name(s.stage));
  table.row(head);
  table.line();
  const auto loss = [](const StageOutcome& s, size_t i) { return digits(s.steps.at(i).loss, 7); };
  row(table, c, "loss, step 1", [&](const StageOutcome& s) { return loss(s, 0); });
  row(table, c, str("loss, step ", spec.config.steps),
      [&](const StageOutcome& s) { return loss(s, s.steps.size() - 1); });
  row(table, c, "bits of losses, norms, weights",
      [&](const StageOutcome& s) { return equality(s, c.bits_promised); });
  row(table, c, "largest |weight - ddp's|",
      [](const StageOutcome& s) { return digits(s.max_abs_difference_to_ddp, 3); });
  table.line();
  table.row({"memory of rank 0 at rest"});
  memory_rows(table, c, Pool::device, &MemoryRow::rest, &MemoryRow::predicted_rest);
  table.line();
  table.row({"each use at its own peak"});
  memory_rows(table, c, Pool::device, &MemoryRow::peak, &MemoryRow::predicted_peak);
  row(table, c, "all uses at one instant",
      [](const StageOutcome& s) { return human_bytes(s.peak_total[0]); });
  row(table, c, "  off the prediction by", [](const StageOutcome& s) {
    return signed_bytes(s.peak_total[0] - s.predicted_peak_total[0]);
  });
  if (any_host(c)) {
    table.line();
    table.row({"host memory of rank 0 at rest"});
    memory_rows(table, c, Pool::host, &MemoryRow::rest, &MemoryRow::predicted_rest);
    row(table, c, "all uses at one instant",
        [](const StageOutcome& s) { return human_bytes(s.peak_host[0]); });
    row(table, c, "  off the prediction by", [](const StageOutcome& s) {
      return signed_bytes(s.peak_host[0] - s.predicted_peak_host[0]);
    });
  }
  table.line();
  row(table, c, "sent per rank and step",
      [](const StageOutcome& s) { return human_bytes(sent(s, &TrafficRow::sent)); });
  row(table, c, "  in units of (N-1)/N model",
      [&](const StageOutcome& s) { return in_model_units(s, c, spec); });
  row(table, c, "  off the prediction by", [](const StageOutcome& s) {
    return signed_bytes(sent(s, &TrafficRow::sent) - sent(s, &TrafficRow::predicted_sent));
  });
  row(table, c, "ms per step",
      [](const StageOutcome& s) { return digits(1e3 * s.seconds_per_step, 3); });
  row(table, c, "  of them waiting, by rank", [](const StageOutcome& s) { return waiting(s); });
  return table.text() + "\n" + unfitting(c) + verdict(c);
}

}  // namespace zl::cli
