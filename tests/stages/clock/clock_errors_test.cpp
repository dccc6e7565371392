// How wrong the clock is: beside published times, as its page says and as the program says.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <map>

#include "stages/predict/clock/collective_time.h"
#include "tests/paths.h"
#include "tests/stages/clock/published.h"

namespace zl {
namespace {

const std::vector<PublishedTable>& tables() {
  static const auto all = published_tables();
  return all;
}
const std::vector<PublishedStep>& steps() {
  static const auto all = published_steps();
  return all;
}

// Of |predicted / measured - 1|.
struct MeanError {
  int count = 0;
  double sum = 0;
  void add(double predicted, double measured) {
    ++count;
    sum += std::abs(predicted / measured - 1);
  }
  void add(const MeanError& other) { count += other.count, sum += other.sum; }
  double mean() const { return count > 0 ? sum / count : 0; }
  std::string text() const {
    char text[16];
    std::snprintf(text, sizeof text, "%.1f %%", 100 * mean());
    return count > 0 ? text : "-";
  }
};

// Classes of sizes: calls of at least so many bytes.
constexpr int64_t kSizes[] = {int64_t(256) << 20, int64_t(16) << 20, int64_t(1) << 20,
                              int64_t(64) << 10};

struct TableErrors {
  MeanError own;         // fitted to even powers of two, tested on odd ones; none if few
  MeanError by_size[4];  // from the machine without measured collectives, by kSizes
  void add(const TableErrors& other) {
    own.add(other.own);
    for (size_t i = 0; i < 4; ++i) by_size[i].add(other.by_size[i]);
  }
  std::string text() const {
    std::string text = own.text();
    for (const MeanError& error : by_size) text += " | " + error.text();
    return text + " |\n";
  }
};

TableErrors errors_of(const PublishedTable& t) {
  TableErrors errors;
  std::vector<TimedCall> fitted, tested;
  for (const TimedCall& call : t.calls)
    (std::lround(std::log2(double(call.bytes))) % 2 == 0 ? fitted : tested).push_back(call);
  constexpr size_t kFewest = 5;
  if (fitted.size() >= kFewest && tested.size() >= kFewest) {
    const CollectiveTerms terms = fit_terms(fitted, t.collective, t.ranks);
    for (const TimedCall& call : tested)
      errors.own.add(seconds_of(terms, t.collective, call.bytes, t.ranks), call.seconds);
  }
  Machine machine = t.machine;
  machine.collectives.clear();
  for (const TimedCall& call : t.calls) {
    const size_t size =
        size_t(std::ranges::find_if(kSizes, [&](int64_t least) { return call.bytes >= least; }) -
               std::begin(kSizes));
    errors.by_size[size].add(
        collective_seconds(machine, t.collective, call.bytes, {.ranks = t.ranks, .nodes = t.nodes}),
        call.seconds);
  }
  return errors;
}

struct StepErrors {
  MeanError spec_sheet, fitted, held_out, calibrated;  // fitted, held_out: of the shipped machine
  void add(const PublishedStep& s) {
    spec_sheet.add(s.spec_sheet, s.seconds);
    (s.fitted ? fitted : held_out).add(s.shipped, s.seconds);
    if (!s.calibrates) calibrated.add(s.calibrated, s.seconds);
  }
  std::string text() const {
    return str(spec_sheet.count, " | ", spec_sheet.text(), " | ", fitted.text(), " | ",
               held_out.text(), " | ", calibrated.text(), " |");
  }
};

// Of the steps for which `is` is true.
template <class Is>
StepErrors errors_of_steps(const Is& is) {
  StepErrors errors;
  for (const PublishedStep& s : steps())
    if (is(s)) errors.add(s);
  return errors;
}

// Published steps that differ in one thing, and by more than releases of one program do.
constexpr double kNoise = 0.02;
struct Pairs {
  int all = 0, right = 0;
  std::string text() const { return str(right, " of ", all); }
};
struct StepOrder {
  Pairs stages, machines, ranks;
};

StepOrder step_order() {
  StepOrder order;
  for (const PublishedStep& a : steps())
    for (const PublishedStep& b : steps()) {
      if (&a == &b) break;
      const bool alike = a.program == b.program && a.model == b.model && a.variant == b.variant &&
                         a.shape == b.shape && a.recomputed == b.recomputed &&
                         a.micro_batch == b.micro_batch && a.accumulation == b.accumulation;
      const bool stage = a.stage != b.stage, machine = a.machine.name != b.machine.name,
                 ranks = a.ranks != b.ranks;
      const double ratio = a.seconds / b.seconds;
      if (!alike || stage + machine + ranks != 1 ||
          std::abs(std::log(ratio)) < std::log(1 + kNoise))
        continue;
      Pairs& pairs = stage ? order.stages : machine ? order.machines : order.ranks;
      ++pairs.all;
      pairs.right += (a.shipped > b.shipped) == (ratio > 1);
    }
  return order;
}

// The tables of tutorials/reference/clock.md.
std::string page_tables() {
  std::string text;
  TableErrors total;
  std::map<std::pair<std::string, int>, std::pair<int, TableErrors>> by_machine;
  for (const PublishedTable& t : tables()) {
    auto& [count, errors] = by_machine[{t.machine.name, int(t.nodes)}];
    ++count;
    errors.add(errors_of(t));
    total.add(errors_of(t));
  }
  for (const auto& [machine, row] : by_machine)
    text +=
        str("| ", machine.first, " | ", machine.second, " | ", row.first, " | ", row.second.text());
  text += str("| all | | ", tables().size(), " | ", total.text());
  const PublishedStep* before = nullptr;
  for (const PublishedStep& s : steps()) {
    const auto same_set = [&s](const PublishedStep& other) {
      return s.program == other.program && s.machine.name == other.machine.name;
    };
    if (before && same_set(*before)) continue;
    before = &s;
    const auto first = std::ranges::find_if(
        steps(), [&](const PublishedStep& other) { return other.calibrates && same_set(other); });
    text += str("| ", s.program, s.unlike.empty() ? "" : " *", " | ", s.machine.name, " | ",
                errors_of_steps(same_set).text(), " ", first->ranks, " |\n");
  }
  const auto modelled = [](const PublishedStep& s) { return s.unlike.empty(); };
  text += "| all but * | | " + errors_of_steps(modelled).text() + " |\n";
  const StepOrder order = step_order();
  return text + str("| stage | ", order.stages.text(), " |\n| machine | ", order.machines.text(),
                    " |\n| number of ranks | ", order.ranks.text(), " |\n");
}

}  // namespace

TEST_CASE("the clock's page and `plan` have the errors beside published times",
          "[stages][clock][seeds]") {
  std::ifstream file(std::string(ZEROLAB_SOURCE_DIR) + "/tutorials/reference/clock.md");
  std::string rows, all = page_tables();
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| ") && all.find(line + "\n") != all.npos) rows += line + "\n";
  INFO(all);
  CHECK(rows == all);
  const StepOrder order = step_order();
  CHECK(order.stages.right == order.stages.all);
  CHECK(order.machines.right == order.machines.all);

  // What `plan` says of its error, to a hundredth.
  const int most[] = {16, 128, 1 << 20}, ranks[] = {8, 128, 512};
  for (size_t column = 0; column < 3; ++column) {
    const StepErrors errors = errors_of_steps([&](const PublishedStep& s) {
      return s.unlike.empty() && s.ranks <= most[column] && (!column || s.ranks > most[column - 1]);
    });
    const auto expected = [&](MachineData data) {
      return expected_step_error(data, ranks[column]).error;
    };
    CAPTURE(column);
    CHECK(std::abs(expected(MachineData::measured) - errors.calibrated.mean()) <= 0.01);
    CHECK(std::abs(expected(MachineData::fitted) - errors.held_out.mean()) <= 0.01);
    CHECK(std::abs(expected(MachineData::data_sheet) - errors.spec_sheet.mean()) <= 0.01);
  }
  CHECK(expected_step_error(MachineData::fitted, 4096).order_only);
  CHECK(!expected_step_error(MachineData::fitted, 1024).order_only);
}

TEST_CASE("the measured collectives of shipped machines are fits of the published ones",
          "[stages][clock]") {
  int rows = 0;
  for (const Machine& m : shipped_machines())
    for (const CollectiveRow& row : m.collectives) {
      ++rows;
      CAPTURE(m.name, name(row.collective), row.ranks);
      CHECK(std::ranges::any_of(tables(), [&](const PublishedTable& t) {
        if (t.machine.name != m.name || t.collective != row.collective || t.ranks != row.ranks ||
            t.nodes != row.nodes || t.changed)
          return false;
        const CollectiveTerms terms = fit_terms(t.calls, row.collective, row.ranks);
        return std::abs(terms.bus / row.terms.bus - 1) < 1e-3 &&
               std::abs(terms.alpha / row.terms.alpha - 1) < 1e-3;
      }));
    }
  CHECK(rows >= 15);
}

TEST_CASE("a machine's data is measured, fitted, or from its data sheet", "[stages][clock]") {
  for (const char* fitted : {"a100-40gb", "a100-80gb", "a100-80gb-4x100g", "h100-sxm"})
    CHECK(machine_data(find_machine(fitted)) == MachineData::fitted);
  CHECK(machine_data(find_machine("b200")) == MachineData::data_sheet);
  Machine mine = find_machine("a100-80gb");
  mine.rank.attention *= 0.9;
  CHECK(machine_data(mine) == MachineData::data_sheet);
  mine.rank.kernels = {{.kernel = "matmul", .points = {{1, 1, 1}}}};
  CHECK(machine_data(mine) == MachineData::measured);
}

}  // namespace zl
