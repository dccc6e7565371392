#include <algorithm>
#include <cmath>
#include <functional>

#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_table.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Table = StageTable<StageOutcome>;

// A row of cells, with "-" for stages that do not fit.
void row(Table& table, const std::string& title, const auto& cell) {
  table.row(title,
            [&](const StageOutcome& s) { return s.out_of_memory ? std::string("-") : cell(s); });
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

void memory_rows(Table& table, const Comparison& c, Pool pool, int64_t MemoryRow::*measured,
                 int64_t MemoryRow::*predicted) {
  for (int i = 0; i < kMemoryUses; ++i) {
    const MemoryUse use = MemoryUse(i);
    const auto bytes = [&](const StageOutcome& s) {
      return bytes_of(s.memory, pool, use, measured);
    };
    if (std::ranges::any_of(c.stages, bytes))
      row(table, std::string("  ") + name(use),
          [&](const StageOutcome& s) { return human_bytes(bytes(s)); });
  }
  row(table, "  off the prediction by",
      [&](const StageOutcome& s) { return signed_bytes(off_by(s, pool, measured, predicted)); });
}

// Gradients and parameters sent, in the paper's unit: (N-1)/N times the model.
std::string in_model_units(const StageOutcome& s, const Comparison& c,
                           const GptTrainingSpec& spec) {
  if (spec.ranks == 1) return "0 Ψ";
  double bytes = 0;
  for (const TrafficRow& r : s.traffic)
    if (r.purpose == Purpose::parameter || r.purpose == Purpose::gradient) bytes += double(r.sent);
  const double unit =
      double(c.parameters) * double(size_of(spec.engine.precision)) * (spec.ranks - 1) / spec.ranks;
  return digits(bytes / unit, 4) + " Ψ";
}

// Whether the stage that this one must equal is wrong itself: then that one is named alone.
bool blamed_elsewhere(const StageOutcome& s, const Comparison& c) {
  return s.gradient_within_bound() && std::ranges::any_of(c.stages, [&](const StageOutcome& other) {
           return other.stage == s.promised_equal_to && !other.gradient_within_bound();
         });
}

std::string equality(const StageOutcome& s, bool promised) {
  if (bits_of(s.stage) == VariantBits::lossy) return "lossy";
  if (bits_of(s.stage) == VariantBits::rounding) return "rounding";
  if (s.stage == s.promised_equal_to) return "-";  // the others are compared with it
  if (s.bitwise_equal) return str("= ", name(s.promised_equal_to));
  return std::string(promised ? "NOT " : "not ") + name(s.promised_equal_to);
}

// The least and the most that a rank waits in a step [ms], with the rank in brackets. The rank that
// waits least is the one that the others wait for.
std::string waiting(const StageOutcome& s) {
  if (s.waiting.empty()) return "-";
  const auto [least, most] = std::minmax_element(s.waiting.begin(), s.waiting.end());
  return str(milliseconds(*least), " (", least - s.waiting.begin(), ") to ", milliseconds(*most),
             " (", most - s.waiting.begin(), ")");
}

// [ms] per step, the mean over the ranks.
template <class Part>
auto mean_of_ranks(Part part) {
  return [part](const StageOutcome& s) {
    double sum = 0;
    for (const TimeSpent& time : s.communication) sum += double(std::invoke(part, time)) * 1e-9;
    return milliseconds(sum / double(s.communication.size() * s.steps.size()));
  };
}

// With lanes: how much of the communication cost no time.
void overlap_rows(Table& table) {
  row(table, "ms in communication (mean of ranks)", mean_of_ranks(&TimeSpent::nanoseconds));
  row(table, "  hidden behind computation", mean_of_ranks(&TimeSpent::hidden));
  row(table, "  exposed", mean_of_ranks(&TimeSpent::exposed));
}

std::string deviation(StageKind stage, const GradientDeviation& d) {
  return str(name(stage), "'s gradient of step 1 differs from ddp's by ",
             digits(d.part_of_bound, 3), " times what rounding allows, most in ", d.parameter, "[",
             d.element, "] on rank ", d.rank, ": ", digits(d.value, 7), ", not ",
             digits(d.value_of_ddp, 7), " (ratio ", digits(d.value / d.value_of_ddp, 4), "). ");
}

// What rank 0 moves between memory spaces in a step, on average over the steps; the rows that are
// off the prediction count all ranks and steps.
void move_rows(Table& table, const Comparison& c) {
  for (int i = 0; i < kMoves; ++i) {
    const Move move = Move(i);
    const auto moved = [move](const StageOutcome& s) {
      return moved_bytes(s.moves, move, &MoveRow::bytes) /
             std::max<int64_t>(1, int64_t(s.steps.size()));
    };
    const auto off = [move](const StageOutcome& s) {
      int64_t bytes = 0;
      for (const MoveRow& r : s.moves)
        if (r.move == move) bytes += r.bytes - r.predicted_bytes;
      return bytes;
    };
    if (std::ranges::none_of(c.stages, moved) && std::ranges::none_of(c.stages, off)) continue;
    row(table, str(name(move), " per rank and step"),
        [&](const StageOutcome& s) { return human_bytes(moved(s)); });
    row(table, "  off the prediction by",
        [&](const StageOutcome& s) { return signed_bytes(off(s)); });
  }
}

// Where no stage made an update, equal weights say little.
std::string untrained_note(const Comparison& c) {
  for (const StageOutcome& s : c.stages)
    if (!s.out_of_memory && !std::ranges::all_of(s.steps, &StepRecord::skipped)) return "";
  return c.any_fits()
             ? "All steps were skipped because no gradient was finite: the weights are the "
               "initial ones in every stage.\n"
             : "";
}

std::string verdict(const Comparison& c) {
  if (!c.any_fits())
    return "No stage fits its memory. Try more ranks, a smaller micro-batch, activation "
           "checkpointing (--set zerolab.recompute=full) or a larger limit.\n";
  if (c.ok() && !c.bits_promised)
    return "All memory and traffic is as predicted, to the byte. Bits were not compared: NCCL adds "
           "in its own order (zerolab.ordered is false), so stages may differ by rounding.\n";
  const auto promises_less = [](const StageOutcome& s) {
    return bits_of(s.stage) == VariantBits::rounding || bits_of(s.stage) == VariantBits::lossy;
  };
  if (c.ok())
    return str("Every stage has the bits that it promises, ",
               std::ranges::any_of(c.stages, promises_less)
                   ? "variants that sum in another order or quantize are within their error "
                     "bounds, "
                   : "",
               "and all memory and traffic is as predicted, to the byte.\n");
  std::string wrong = nonfinite_text(c);
  for (const StageOutcome& s : c.stages) {
    if (s.out_of_memory) continue;
    if (c.bits_promised && !s.bitwise_equal && !blamed_elsewhere(s, c))
      wrong += str(name(s.stage), " does not have the bits of ", name(s.promised_equal_to), ". ");
    if (s.weights_part_of_bound.value_or(0) > 1)
      wrong += str(name(s.stage), "'s gathered weights differ from its shards by ",
                   digits(*s.weights_part_of_bound, 3), " times what 8 bits allow. ");
    if (s.gradient_deviation && s.gradient_deviation->part_of_bound > 1)
      wrong += deviation(s.stage, *s.gradient_deviation);
    if (s.diagnosis.found())
      wrong +=
          str("In ", name(s.stage), " ", s.diagnosis.meaning, " (", s.diagnosis.evidence, "). ");
    if (!s.predictions_exact()) wrong += str(name(s.stage), " differs from its prediction. ");
  }
  return "CHECK FAILED: " + wrong + "\n";
}

std::string unfitting(const ComparisonReport& report) {
  const GptTrainingSpec& spec = report.setup.spec;
  std::string text;
  for (const StageOutcome& s : report.comparison.stages)
    if (const auto& o = s.out_of_memory) {
      const bool host = o->pool == Pool::host;
      const int64_t limit = host ? spec.host_memory : spec.device_memory;
      text += str(name(s.stage), " does not fit: rank ", o->rank, " asked for ",
                  human_bytes(o->asked), host ? " of host memory" : "", " in ", o->phase,
                  o->unit.empty() ? "" : ", unit " + o->unit,
                  limit > 0 ? str("; the limit is ", human_bytes(limit),
                                  ", and 'zerolab plan' says what it needs")
                            : "",
                  ".\n");
    }
  return text;
}

std::string timing_note(const RunSetup& setup) {
  const int ranks = setup.spec.ranks, places = setup.device.places(ranks);
  if (places >= ranks) return "";
  const int threads = setup.device.threads;
  return str("Times say little here: ", ranks, " ranks",
             threads > 1 ? str(" of ", threads, " threads") : "", " take turns on ",
             setup.device.on_gpus() ? plural(places, "GPU") : plural(usable_cores(), "core"),
             ".\n");
}

std::string baseline_line(const ComparisonReport& report) {
  if (report.baseline.empty()) return "";
  if (report.baseline_difference.empty())
    return printable("The results equal those of " + report.baseline + ".\n");
  return printable("DIFFERENT from " + report.baseline + ": " + report.baseline_difference + "\n");
}

void memory_sections(Table& table, const Comparison& c) {
  const auto section = [&](const char* title, Pool pool, auto measured, auto predicted) {
    table.heading(title);
    memory_rows(table, c, pool, measured, predicted);
  };
  const auto peaks = [&](auto measured, auto predicted) {
    row(table, "all uses at one instant",
        [=](const StageOutcome& s) { return human_bytes((s.*measured)[0]); });
    row(table, "  off the prediction by",
        [=](const StageOutcome& s) { return signed_bytes((s.*measured)[0] - (s.*predicted)[0]); });
  };
  section("memory of rank 0 in steady state", Pool::device, &MemoryRow::rest,
          &MemoryRow::predicted_rest);
  section("each use at its own peak", Pool::device, &MemoryRow::peak, &MemoryRow::predicted_peak);
  peaks(&StageOutcome::peak_total, &StageOutcome::predicted_peak_total);
  if (std::ranges::any_of(
          c.stages, [](const StageOutcome& s) { return !s.out_of_memory && s.peak_host[0] > 0; })) {
    section("host memory of rank 0 in steady state", Pool::host, &MemoryRow::rest,
            &MemoryRow::predicted_rest);
    peaks(&StageOutcome::peak_host, &StageOutcome::predicted_peak_host);
  }
  const auto is_on_disk = [](const MemoryRow& r) { return r.pool == Pool::disk; };
  if (std::ranges::any_of(c.stages,
                          [&](const auto& s) { return std::ranges::any_of(s.memory, is_on_disk); }))
    section("on disk, of rank 0", Pool::disk, &MemoryRow::rest, &MemoryRow::predicted_rest);
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

std::string comparison_text(const ComparisonReport& report, const Terminal& terminal) {
  const Comparison& c = report.comparison;
  const GptTrainingSpec& spec = report.setup.spec;
  Table table(c.stages, str(with_commas(c.parameters), " parameters, ", plural(spec.ranks, "rank"),
                            spec.device == DeviceKind::cuda ? " on GPUs" : ""));
  table.heading("");
  const auto loss = [](const StageOutcome& s, size_t i) { return digits(s.steps.at(i).loss, 7); };
  row(table, "loss, step 1", [&](const StageOutcome& s) { return loss(s, 0); });
  row(table, str("loss, step ", spec.steps),
      [&](const StageOutcome& s) { return loss(s, s.steps.size() - 1); });
  row(table, "bits of losses, norms, weights",
      [&](const StageOutcome& s) { return equality(s, c.bits_promised); });
  row(table, "largest |weight - ddp's|",
      [](const StageOutcome& s) { return digits(s.max_abs_difference_to_ddp, 3); });
  if (std::ranges::any_of(c.stages, [](const auto& s) { return s.gradient_deviation.has_value(); }))
    row(table, "gradient of step 1: part of bound", [](const StageOutcome& s) {
      return s.gradient_deviation ? digits(s.gradient_deviation->part_of_bound, 2) : "-";
    });
  if (std::ranges::any_of(c.stages,
                          [](const auto& s) { return s.weights_part_of_bound.has_value(); }))
    row(table, "gathered weights: part of bound", [](const StageOutcome& s) {
      return s.weights_part_of_bound ? digits(*s.weights_part_of_bound, 2) : "-";
    });
  memory_sections(table, c);
  table.heading("");
  const auto sent = [](const StageOutcome& s) { return sent_bytes(s.traffic, &TrafficRow::sent); };
  row(table, "sent per rank and step", [&](const auto& s) { return human_bytes(sent(s)); });
  row(table, "  in units of (N-1)/N model",
      [&](const StageOutcome& s) { return in_model_units(s, c, spec); });
  row(table, "  off the prediction by", [&](const StageOutcome& s) {
    return signed_bytes(sent(s) - sent_bytes(s.traffic, &TrafficRow::predicted_sent));
  });
  move_rows(table, c);
  row(table, "ms per step (median)",
      [](const StageOutcome& s) { return milliseconds(s.seconds_per_step); });
  row(table, "  spent waiting (rank)", [](const StageOutcome& s) { return waiting(s); });
  if (rank_options(spec).lane) overlap_rows(table);
  return table.text() + "\n" + report.timelines + comparison_bars(report, terminal) +
         preset_text(report.presets) + timing_note(report.setup) + unfitting(report) +
         untrained_note(c) + verdict(c) + baseline_line(report);
}

}  // namespace zl::cli
