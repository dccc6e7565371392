// What 'zerolab bench step' says of its rows: a table, JSON, CSV.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/step.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string short_seconds(double seconds) {
  return seconds < 1 ? digits(1e3 * seconds, 3) + " ms" : digits(seconds, 3) + " s";
}
std::string times(const StepRow& row, const StepRow* other) {
  return other ? str("× ", digits(row.relative_to(*other).median, 3)) : "-";
}
int64_t fullest(const StepRow& row) { return *std::ranges::max_element(row.peak); }

// "× 1.97": the time beside that of the same kind of row at the sweep's value before.
std::string growth(const StepReport& report, const StepRow& row) {
  const StepPoint* before = row.point == report.points.data() ? nullptr : row.point - 1;
  if (!before || before->setting != row.point->setting) return "-";
  for (const StepRow& r : report.rows)
    if (r.point == before && r.ran() && r.kind.stage == row.kind.stage &&
        r.kind.independent == row.kind.independent && (r.kind.ranks == 1) == (row.kind.ranks == 1))
      return str("× ", digits(row.relative_to(r).median, 3));
  return "-";
}

std::string table(const StepReport& report, bool sweeps) {
  TextTable table;
  std::vector<std::string> titles = {"stage",   "ranks",    "median", "min",
                                     "max",     "tokens/s", "to ddp", "to independent",
                                     "of peak", "memory",   "faults"};
  if (sweeps)
    titles.insert(titles.begin(), "sweep"), titles.insert(titles.end(), {"parameters", "grows"});
  table.row(titles);
  const StepPoint* last = nullptr;
  for (const StepRow& r : report.rows) {
    if (sweeps && last && last != r.point) table.line();
    last = r.point;
    std::vector<std::string> row = {r.kind.independent ? "no communication" : r.kind.name(),
                                    str(r.kind.ranks)};
    if (!r.ran()) {
      row.push_back("-");
    } else {
      const Spread s = r.seconds();
      row.insert(row.end(),
                 {short_seconds(s.median), short_seconds(s.least), short_seconds(s.most),
                  short_number(double(r.tokens) / s.median), times(r, report.beside(r, false)),
                  times(r, report.beside(r, true)), digits(100 * r.share, 3) + " %",
                  human_bytes(fullest(r)), digits(r.page_faults, 2)});
      if (sweeps)
        row.insert(row.end(),
                   {with_commas(r.point->setup.spec.model.parameters()), growth(report, r)});
    }
    if (sweeps) row.insert(row.begin(), r.point->label());
    table.row(row);
  }
  return table.text();
}

Json seconds_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.least}, {"max", s.most}};
}

Json row_json(const StepReport& report, const StepRow& r) {
  Json row{{"stage", r.kind.name()}, {"ranks", r.kind.ranks}};
  if (!r.point->setting.empty())
    row["sweep"] = {{"setting", r.point->setting}, {"value", r.point->value}};
  if (!r.ran()) {
    row["out_of_memory"] = r.out_of_memory;
    return row;
  }
  const Spread s = r.seconds();
  row.update(
      {{"seconds_per_step", seconds_json(s)}, {"tokens_per_second", double(r.tokens) / s.median}});
  for (const bool independent : {false, true}) {
    const std::string key = independent ? "time_relative_to_independent" : "time_relative_to_ddp";
    const StepRow* other = report.beside(r, independent);
    const Spread ratio = other ? r.relative_to(*other) : Spread{};
    row[key] = other ? Json(ratio.median) : Json(nullptr);
    row[key + "_range"] = other ? Json{{"min", ratio.least}, {"max", ratio.most}} : Json(nullptr);
  }
  row.update(
      {{"operations_per_step", r.operations},
       {"places", r.point->setup.device.places(r.kind.ranks)},
       {"share_of_peak", r.share},
       {"peak_total_bytes", r.peak},
       {"parameters", r.point->setup.spec.model.parameters()},
       {"tokens_per_step", r.tokens},
       {"page_faults_per_step", r.page_faults},
       {"system_allocations_per_step",
        r.system_allocations ? Json(*r.system_allocations) : Json(nullptr)},
       {"peak_resident_bytes", r.peak_resident ? Json(*r.peak_resident) : Json(nullptr)},
       {"resident_bytes_before", r.peak_resident ? Json(r.resident_before) : Json(nullptr)}});
  return row;
}

Json profile_json(const KernelProfile& p) {
  const double steps = double(p.steps);
  Json json{{"stage", "ddp"},
            {"ranks", 1},
            {"steps", p.steps},
            {"seconds_per_step", seconds_json(p.seconds)},
            {"share_outside_kernels", seconds_json(p.outside)},
            {"clock_seconds_per_step", p.clock},
            {"untimed_calls", p.untimed},
            {"kernels", Json::array()}};
  for (const KernelTotal& k : p.kernels)
    json["kernels"].push_back({{"kernel", k.kernel},
                               {"calls_per_step", double(k.calls) / steps},
                               {"seconds_per_step", k.seconds / steps},
                               {"share_of_step", k.seconds / p.total},
                               {"operations_per_step", double(k.operations) / steps},
                               {"bytes_per_step", double(k.bytes) / steps}});
  return json;
}

}  // namespace

std::string step_text(const StepReport& report) {
  const RunSetup& setup = report.setup();
  const TrainingSpec& spec = setup.spec;
  const bool sweeps = !report.options.sweeps.empty();
  std::string head =
      str(setup.model.name, sweeps ? " and more: " : ": ", with_commas(spec.model.parameters()),
          " parameters, ", precision_name(spec.config.precision), "; B ", spec.config.micro_batch,
          " × A ", spec.config.accumulation, ", windows of ", spec.window, " tokens; ",
          setup.device.name(), setup.device.tf32 ? ", fp32 products in TF32" : "", "\nmedian of ",
          report.options.timed, " steps in ", std::min(report.options.rounds, report.options.timed),
          " rounds, after ", report.options.warm_up,
          " in each; peak: ", digits(report.operation_rate / 1e9, 4), " GFLOP/s of ",
          setup.device.on_gpus() ? "a GPU" : "a core", ", times ", setup.device.places(spec.ranks),
          " with ", spec.ranks, spec.ranks == 1 ? " rank\n\n" : " ranks\n\n");
  std::string unfit;
  for (const StepRow& r : report.rows)
    if (!r.ran())
      unfit += str(r.point->label(", "), r.kind.name(), " with ", r.kind.ranks,
                   r.kind.ranks == 1 ? " rank" : " ranks", ": ", r.out_of_memory, "\n");
  return head + table(report, sweeps) + "\n" + unfit +
         "Each rank has its own micro-batch, so more ranks do more work per step. Without "
         "communication each rank trains alone.\n"
         "Peak counts 6 operations per parameter and token, and attention's; memory is the fullest "
         "rank's fullest moment, what\n"
         "is offloaded to the host included; faults are pages that a step touched for the first "
         "time.\n" +
         (report.profile ? "\n" + profile_text(*report.profile, report.operation_rate) : "");
}

std::string step_json(const StepReport& report) {
  const RunSetup& setup = report.setup();
  const TrainingSpec& spec = setup.spec;
  Json json{{"schema", 1},
            {"command", "bench step"},
            {"ok", true},
            {"device", name(spec.device)},
            {"device_name", setup.device.name()},
            {"tf32", setup.device.tf32},
            {"model", setup.model.name},
            {"parameters", spec.model.parameters()},
            {"precision", precision_name(spec.config.precision)},
            {"micro_batch", spec.config.micro_batch},
            {"accumulation", spec.config.accumulation},
            {"window", spec.window},
            {"steps", report.options.timed},
            {"warm_up", report.options.warm_up},
            {"rounds", std::min(report.options.rounds, report.options.timed)},
            {"operations_per_second", report.operation_rate},
            {"results", Json::array()}};
  for (const StepRow& r : report.rows) json["results"].push_back(row_json(report, r));
  if (report.profile) json["profile"] = profile_json(*report.profile);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string step_csv(const StepReport& report) {
  std::string text =
      "setting,value,stage,ranks,micro_batch,window,parameters,tokens,seconds_median,seconds_min,"
      "seconds_max,tokens_per_second,"
      "share_of_peak,time_relative_to_ddp,time_relative_to_independent,peak_bytes,page_faults\n";
  const auto ratio = [](const StepRow& row, const StepRow* other) {
    return other ? digits(row.relative_to(*other).median, 6) : std::string();
  };
  for (const StepRow& r : report.rows) {
    const TrainingSpec& spec = r.point->setup.spec;
    const std::string value = r.point->setting.empty() ? "" : str(r.point->value);
    text += str(r.point->setting, ",", value, ",", r.kind.name(), ",", r.kind.ranks, ",",
                spec.config.micro_batch, ",", spec.window, ",", spec.model.parameters(), ",");
    if (!r.ran()) {
      text += ",,,,,,,,,\n";  // it did not fit
      continue;
    }
    const Spread s = r.seconds();
    text += str(r.tokens, ",", digits(s.median, 6), ",", digits(s.least, 6), ",", digits(s.most, 6),
                ",", digits(double(r.tokens) / s.median, 6), ",", digits(r.share, 6), ",",
                ratio(r, report.beside(r, false)), ",", ratio(r, report.beside(r, true)), ",",
                fullest(r), ",", digits(r.page_faults, 6), "\n");
  }
  return text;
}

}  // namespace zl::cli
