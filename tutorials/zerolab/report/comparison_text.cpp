#include <algorithm>
#include <cmath>

#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_table.h"

namespace zl::cli {
namespace {

using Table = StageTable<StageOutcome>;
using PerRank = std::vector<int64_t> StageOutcome::*;

// A row of bytes, and one that says how far they are off their prediction.
void off_row(Table& table, const auto& difference) {
  table.row("  off the prediction by", [&](const StageOutcome& s) {
    const int64_t bytes = difference(s);
    return str(bytes > 0 ? "+" : "", bytes, " B");
  });
}

// The uses of a pool on rank 0, and the largest difference to the prediction over all ranks and
// uses; then the most that all uses take together.
void memory_section(Table& table, const char* title, Pool pool, bool at_peak,
                    PerRank total = nullptr, PerRank predicted_total = nullptr) {
  const auto measured = at_peak ? &MemoryRow::peak : &MemoryRow::rest,
             predicted = at_peak ? &MemoryRow::predicted_peak : &MemoryRow::predicted_rest;
  table.heading(title);
  use_rows(table, pool, measured);
  off_row(table, [=](const StageOutcome& s) {
    int64_t most = 0;
    for (const MemoryRow& r : s.memory)
      if (r.pool == pool && std::abs(r.*measured - r.*predicted) > std::abs(most))
        most = r.*measured - r.*predicted;
    return most;
  });
  if (!total) return;
  table.row("all uses at one instant", [=](const StageOutcome& s) { return (s.*total)[0]; });
  off_row(table, [=](const StageOutcome& s) { return (s.*total)[0] - (s.*predicted_total)[0]; });
}

void memory_sections(Table& table) {
  memory_section(table, "memory of rank 0 in steady state", Pool::device, false);
  memory_section(table, "each use at its own peak", Pool::device, true, &StageOutcome::peak_total,
                 &StageOutcome::predicted_peak_total);
  if (table.any([](const StageOutcome& s) { return s.peak_host[0]; }))
    memory_section(table, "host memory of rank 0 in steady state", Pool::host, false,
                   &StageOutcome::peak_host, &StageOutcome::predicted_peak_host);
  if (table.any([](const StageOutcome& s) {
        return std::ranges::any_of(s.memory, [](auto& r) { return r.pool == Pool::disk; });
      }))
    memory_section(table, "on disk, of rank 0", Pool::disk, false);
}

std::string equality(const StageOutcome& s, bool promised) {
  if (bits_of(s.stage) == VariantBits::lossy) return "lossy";
  if (bits_of(s.stage) == VariantBits::rounding) return "rounding";
  if (s.stage == s.promised_equal_to) return "-";  // the others are compared with it
  return str(s.bitwise_equal ? "= " : promised ? "NOT " : "not ", name(s.promised_equal_to));
}

void value_rows(Table& table, const Comparison& c) {
  table.heading();
  const auto loss = [&](const StepRecord& step) { return digits(step.loss, 7); };
  table.row("loss, step 1", [&](const auto& s) { return loss(s.steps.front()); });
  const auto ran = std::ranges::find_if(c.stages, [](auto& s) { return !s.steps.empty(); });
  if (ran != c.stages.end())
    table.row(str("loss, step ", ran->steps.size()),
              [&](const auto& s) { return loss(s.steps.back()); });
  table.row("bits of losses, norms, weights",
            [&](const auto& s) { return equality(s, c.bits_promised); });
  table.row("largest |weight - ddp's|",
            [](const auto& s) { return digits(s.max_abs_difference_to_ddp, 3); });
  if (table.any([](const auto& s) { return s.gradient_deviation.has_value(); }))
    table.row("gradient of step 1: part of bound", [](const auto& s) {
      return s.gradient_deviation ? digits(s.gradient_deviation->part_of_bound, 2) : "-";
    });
  if (table.any([](const auto& s) { return s.weights_part_of_bound.has_value(); }))
    table.row("gathered weights: part of bound", [](const auto& s) {
      return s.weights_part_of_bound ? digits(*s.weights_part_of_bound, 2) : "-";
    });
}

// Gradients and parameters sent, in the paper's unit: (N-1)/N times the model.
std::string in_model_units(const StageOutcome& s, const GptTrainingSpec& spec) {
  double bytes = 0;
  for (const TrafficRow& r : s.traffic)
    if (r.purpose == Purpose::parameter || r.purpose == Purpose::gradient) bytes += double(r.sent);
  const double model = double(spec.model.parameters()) * double(size_of(spec.engine.precision));
  return digits(spec.ranks == 1 ? 0 : bytes / (model * (spec.ranks - 1) / spec.ranks), 4) + " Ψ";
}

// The rows of a move are of rank 0 and one step on average; what is off counts all ranks and steps.
void traffic_rows(Table& table, const GptTrainingSpec& spec) {
  table.heading();
  const auto sent = [](const StageOutcome& s) { return sent_bytes(s.traffic, &TrafficRow::sent); };
  table.row("sent per rank and step", sent);
  table.row("  in units of (N-1)/N model", [&](const auto& s) { return in_model_units(s, spec); });
  off_row(table, [&](const StageOutcome& s) {
    return sent(s) - sent_bytes(s.traffic, &TrafficRow::predicted_sent);
  });
  for (int i = 0; i < kMoves; ++i) {
    const auto is_move = [i](const MoveRow& r) { return r.move == Move(i); };
    if (!table.any([&](const auto& s) { return std::ranges::any_of(s.moves, is_move); })) continue;
    table.row(str(name(Move(i)), " per rank and step"), [=](const StageOutcome& s) {
      return moved_bytes(s.moves, Move(i), &MoveRow::bytes) / int64_t(s.steps.size());
    });
    off_row(table, [&](const StageOutcome& s) {
      int64_t bytes = 0;
      for (const MoveRow& r : s.moves)
        if (is_move(r)) bytes += r.bytes - r.predicted_bytes;
      return bytes;
    });
  }
}

// The least and the most that a rank waits in a step [ms], with the rank in brackets. The rank that
// waits least is the one that the others wait for. With lanes: how much of the communication cost
// no time.
void time_rows(Table& table, bool lanes) {
  table.row("ms per step (median)", [](const auto& s) { return milliseconds(s.seconds_per_step); });
  table.row("  spent waiting, on average (rank)", [](const StageOutcome& s) -> std::string {
    if (s.waiting.empty()) return "-";
    const auto [least, most] = std::minmax_element(s.waiting.begin(), s.waiting.end());
    return str(milliseconds(*least), " (", least - s.waiting.begin(), ") to ", milliseconds(*most),
               " (", most - s.waiting.begin(), ")");
  });
  const auto mean = [&](const char* title, const auto& nanoseconds) {
    table.row(title, [&](const StageOutcome& s) {
      double sum = 0;
      for (const TimeSpent& time : s.communication) sum += double(nanoseconds(time)) * 1e-9;
      return milliseconds(sum / double(s.communication.size() * s.steps.size()));
    });
  };
  if (!lanes) return;
  mean("ms in communication (mean of ranks)", [](const auto& t) { return t.nanoseconds; });
  mean("  hidden behind computation", [](const auto& t) { return t.hidden(); });
  mean("  exposed", [](const auto& t) { return t.exposed; });
}

// ---- sentences ---------------------------------------------------------------------------------

// Whether the stage that this one must equal is wrong itself: then that one is named alone.
bool blamed_elsewhere(const StageOutcome& s, const Comparison& c) {
  return s.gradient_within_bound() && std::ranges::any_of(c.stages, [&](const StageOutcome& other) {
           return other.stage == s.promised_equal_to && !other.gradient_within_bound();
         });
}

std::string what_is_wrong(const StageOutcome& s, const Comparison& c) {
  const std::string stage = name(s.stage);
  std::string text;
  if (c.bits_promised && !s.bitwise_equal && !blamed_elsewhere(s, c))
    text += str(stage, " does not have the bits of ", name(s.promised_equal_to), ". ");
  if (s.weights_part_of_bound.value_or(0) > 1)
    text += str(stage, "'s gathered weights differ from its shards by ",
                digits(*s.weights_part_of_bound, 3), " times what 8 bits allow. ");
  if (const auto& d = s.gradient_deviation; d && d->part_of_bound > 1)
    text +=
        str(stage, "'s gradient of step 1 differs from ddp's by ", digits(d->part_of_bound, 3),
            " times what rounding allows, most in ", d->parameter, "[", d->element, "] on rank ",
            d->rank, ": ", digits(d->value, 7), ", not ", digits(d->value_of_ddp, 7), " (ratio ",
            digits(d->value / d->value_of_ddp, 4), "). ");
  if (s.diagnosis.found())
    text += str("In ", stage, " ", s.diagnosis.meaning, " (", s.diagnosis.evidence, "). ");
  if (!s.predictions_exact()) text += stage + " differs from its prediction. ";
  return text;
}

std::string verdict(const Comparison& c) {
  if (!c.any_fits())
    return "No stage fits its memory. Try more ranks, a smaller micro-batch, activation "
           "checkpointing (--set zerolab.recompute=full) or a larger limit.\n";
  if (!c.ok()) {
    std::string wrong = nonfinite_text(c);
    for (const StageOutcome& s : c.stages)
      if (!s.out_of_memory) wrong += what_is_wrong(s, c);
    return "CHECK FAILED: " + wrong + "\n";
  }
  if (!c.bits_promised)
    return "All memory and traffic is as predicted, to the byte. Bits were not compared: NCCL adds "
           "in its own order (zerolab.ordered is false), so stages may differ by rounding.\n";
  const bool bounds = std::ranges::any_of(c.stages, [](const StageOutcome& s) {
    return bits_of(s.stage) == VariantBits::rounding || bits_of(s.stage) == VariantBits::lossy;
  });
  return str("Every stage has the bits that it promises, ",
             bounds ? "variants that sum in another order or quantize are within their error "
                      "bounds, "
                    : "",
             "and all memory and traffic is as predicted, to the byte.\n");
}

// What a reader should know before the verdict.
std::string notes(const ComparisonReport& report) {
  const RunSetup& setup = report.setup;
  const Comparison& c = report.comparison;
  const int ranks = setup.spec.ranks, places = setup.device.places(ranks);
  std::string text;
  if (places < ranks)
    text += str("Times say little here: ", ranks, " ranks",
                setup.device.threads > 1 ? str(" of ", setup.device.threads, " threads") : "",
                " take turns on ", plural(places, setup.device.on_gpus() ? "GPU" : "core"), ".\n");
  bool updated = false;
  for (const StageOutcome& s : c.stages) {
    updated = updated || !std::ranges::all_of(s.steps, &StepRecord::skipped);
    const auto& o = s.out_of_memory;
    if (!o) continue;
    const bool host = o->pool == Pool::host;
    const int64_t limit = host ? setup.spec.host_memory : setup.spec.device_memory;
    text += str(
        name(s.stage), " does not fit: rank ", o->rank, " asked for ", human_bytes(o->asked),
        host ? " of host memory" : "", " in ", o->phase, o->unit.empty() ? "" : ", unit " + o->unit,
        limit > 0
            ? str("; the limit is ", human_bytes(limit), ", and 'zerolab plan' says what it needs")
            : "",
        ".\n");
  }
  if (!updated && c.any_fits())
    text +=
        "All steps were skipped because no gradient was finite: the weights are the initial "
        "ones in every stage.\n";
  return text;
}

}  // namespace

std::string nonfinite_text(const Comparison& c) {
  for (const StageOutcome& s : c.stages) {
    const int64_t step = s.out_of_memory ? 0 : s.first_nonfinite();
    if (step > 0)
      return str(name(s.stage),
                 step > int64_t(s.steps.size()) ? " ends with weights that are not finite"
                                                : str("'s loss is not finite in step ", step),
                 ", and equal bits of such numbers prove nothing: try a smaller learning rate, or "
                 "check the weights that it begins with. ");
  }
  return "";
}

std::string comparison_text(const ComparisonReport& report) {
  const GptTrainingSpec& spec = report.setup.spec;
  const Comparison& c = report.comparison;
  Table table(c.stages, str(with_commas(c.parameters), " parameters, ", plural(spec.ranks, "rank"),
                            spec.device == DeviceKind::cuda ? " on GPUs" : ""));
  value_rows(table, c);
  memory_sections(table);
  traffic_rows(table, spec);
  time_rows(table, rank_options(spec).lane != nullptr);
  const std::string& difference = report.baseline_difference;
  return table.text() + "\n" + preset_text(report.presets) + notes(report) + verdict(c) +
         (report.baseline.empty() ? ""
          : difference.empty()
              ? printable("The results equal those of " + report.baseline + ".\n")
              : printable("DIFFERENT from " + report.baseline + ": " + difference + "\n"));
}

}  // namespace zl::cli
