// How wrong the clock is, and that this is what the program says.
// The published times that are shipped, and tables with mistakes, which are not read.

#include "stages/predict/ground_truth/clock_errors.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include "stages/predict/clock/collective_fit.h"
#include "stages/predict/clock/collective_time.h"
#include "stages/predict/clock/expected_error.h"
#include "stages/predict/ground_truth/published.h"
#include "tests/nn/scratch_folder.h"

using namespace zl;

namespace {

const std::vector<StepPrediction>& predictions() {
  static const auto all = predict_steps(published_steps());
  return all;
}

PublishedStep step(const std::string& machine, int ranks, double seconds) {
  return {.program = "p",
          .machine = machine,
          .model = "m",
          .parameters = 1,
          .shape = {.layers = 2, .heads = 4, .width = 256, .block_size = 128, .vocab = 512},
          .ranks = ranks,
          .stage = StageKind::zero3,
          .micro_batch = 4,
          .accumulation = 1,
          .seconds = seconds,
          .source = "s"};
}

}  // namespace

TEST_CASE("an error is relative, and a sum has its mean and its largest", "[stages]") {
  ErrorSum sum;
  CHECK(sum.mean() == 0);
  sum.add(1.1, 1);
  sum.add(2, 4);
  CHECK(sum.mean() == Catch::Approx(0.3));
  CHECK(sum.largest == Catch::Approx(0.5));
}

TEST_CASE("collectives are within their limits: own table, and large calls from the data sheet",
          "[stages]") {
  const CallErrors all = total(collective_errors(published_calls()));
  CHECK(all.own.count > 100);
  CHECK(all.own.mean() <= 0.10);
  CHECK(all.by_size[3].count > 100);
  CHECK(all.by_size[3].mean() <= 0.10);

  std::vector<PublishedCall> slow = published_calls();  // negative twin
  for (PublishedCall& call : slow) call.seconds *= 2;
  CHECK(total(collective_errors(slow)).by_size[3].mean() > 0.4);
}

TEST_CASE("steps are within their limits: from the data sheet, and calibrated on one step",
          "[stages]") {
  const SetErrors all = total(set_errors(predictions()));
  CHECK(all.spec_sheet.count > 200);
  CHECK(all.spec_sheet.mean() <= 0.20);
  CHECK(all.calibrated.mean() <= 0.10);
  CHECK(all.held_out.mean() <= 0.11);
  for (const SetErrors& set : set_errors(predictions()))
    if (set.program == "llm-foundry" || set.program == "InternEvo") {
      CAPTURE(set.program, set.machine);
      CHECK(set.calibrated.mean() <= 0.10);
      CHECK(set.spec_sheet.mean() <= 0.20);
    }
}

TEST_CASE("the clock has the order of all published stages and machines", "[stages]") {
  const StepOrder order = step_order(predictions());
  CHECK(order.stages.pairs >= 7);
  CHECK(order.stages.right == order.stages.pairs);
  CHECK(order.machines.pairs >= 10);
  CHECK(order.machines.right == order.machines.pairs);
  CHECK(order.ranks.right * 10 >= order.ranks.pairs * 8);

  std::vector<StepPrediction> reversed = predictions();  // negative twin
  for (StepPrediction& p : reversed) p.shipped = 1 / p.shipped;
  CHECK(step_order(reversed).stages.right == 0);
}

TEST_CASE("a pair differs in one thing, and by more than noise", "[stages]") {
  const std::vector<PublishedStep> steps = {step("a100-80gb", 8, 1.0), step("a100-80gb", 16, 1.3),
                                            step("h100-sxm", 16, 0.9),
                                            step("a100-80gb", 32, 1.301)};
  std::vector<StepPrediction> predicted;
  for (const PublishedStep& s : steps)
    predicted.push_back({.step = &s, .shipped = s.machine == "h100-sxm" ? 2.0 : s.seconds});
  const StepOrder order = step_order(predicted);
  CHECK(order.stages.pairs == 0);
  CHECK(order.machines.pairs == 1);  // 16 ranks; predicted the wrong way round
  CHECK(order.machines.right == 0);
  CHECK(order.ranks.pairs == 2);  // 8 and 16, 8 and 32; 16 and 32 differ by less than noise
  CHECK(order.ranks.right == 2);
}

TEST_CASE("one factor makes the step that calibrates exact and scales the others", "[stages]") {
  std::vector<PublishedStep> steps = {step("a100-80gb", 16, 1), step("a100-80gb", 8, 1)};
  for (PublishedStep& s : steps) s.seconds = 3 * predicted_seconds(s, find_machine("a100-80gb"));
  const std::vector<StepPrediction> predicted = predict_steps(steps);
  CHECK(!predicted[0].calibrates);
  CHECK(predicted[1].calibrates);  // it has fewer ranks
  CHECK(predicted[1].calibrated == Catch::Approx(steps[1].seconds).epsilon(2e-3));
  CHECK(predicted[1].spec_sheet < 0.9 * steps[1].seconds);
  CHECK(std::ranges::none_of(predicted, &StepPrediction::fitted));
}

TEST_CASE("a Llama is replaced by a GPT with the parameters of its blocks", "[stages]") {
  PublishedStep llama = step("a100-80gb", 8, 1);
  // Llama 2 7B: 6.738e9 parameters, two tables of 32000 x 4096. A block of a GPT has 12 * 4096^2.
  llama.llama = true;
  llama.parameters = 6'738'000'000;
  llama.shape = {.layers = 30, .heads = 32, .width = 4096, .block_size = 4096, .vocab = 32'000};
  CHECK(training_spec(llama, false, Machine{}).model.layers == 32);
  llama.llama = false;
  CHECK(training_spec(llama, false, Machine{}).model.layers == 30);
}

TEST_CASE("a share of recomputed blocks lies between none and all", "[stages]") {
  PublishedStep s = step("a100-80gb", 8, 1);
  const Machine m = find_machine("a100-80gb");
  const double none = predicted_seconds(s, m);
  s.recomputed = 1;
  const double all = predicted_seconds(s, m);
  s.recomputed = 0.25;
  CHECK(all > none);
  CHECK(predicted_seconds(s, m) == Catch::Approx(0.75 * none + 0.25 * all));
}

TEST_CASE("the measured collectives of shipped machines are fits of the published ones",
          "[stages]") {
  const std::vector<PublishedCall>& calls = published_calls();
  int rows = 0;
  for (const Machine& m : shipped_machines())
    for (const CollectiveRow& row : m.collectives) {
      ++rows;
      CAPTURE(m.name, name(row.collective), row.ranks);
      std::map<std::string, std::vector<TimedCall>> tables;  // by system
      for (const PublishedCall& c : calls)
        if (c.machine == m.name && c.collective == row.collective && c.ranks == row.ranks &&
            c.nodes == row.nodes && c.change.network == 0)
          tables[c.system].push_back({c.bytes, c.seconds});
      CHECK(std::ranges::any_of(tables, [&](const auto& table) {
        const CollectiveTerms terms = fit_terms(table.second, row.collective, row.ranks);
        return std::abs(terms.bus / row.terms.bus - 1) < 1e-3 &&
               std::abs(terms.alpha / row.terms.alpha - 1) < 1e-3;
      }));
    }
  CHECK(rows >= 15);
}

// A point is a hundredth.
TEST_CASE("expected errors are those of the published times, to a point", "[stages]") {
  const CallErrors calls = total(collective_errors(published_calls()));
  CHECK(std::abs(expected_call_error(true, 1 << 20) - calls.own.mean()) <= 0.01);
  for (size_t i = 0; i < 4; ++i)
    CHECK(std::abs(expected_call_error(false, kSizes[i]) - calls.by_size[i].mean()) <= 0.01);

  ErrorSum errors[3][3];
  for (const StepPrediction& p : predictions()) {
    if (!p.step->unlike.empty()) continue;
    const size_t column = p.step->ranks <= 16 ? 0 : p.step->ranks <= 128 ? 1 : 2;
    const double seconds = p.step->seconds;
    if (!p.calibrates) errors[size_t(MachineData::measured)][column].add(p.calibrated, seconds);
    if (!p.fitted) errors[size_t(MachineData::fitted)][column].add(p.shipped, seconds);
    errors[size_t(MachineData::data_sheet)][column].add(p.spec_sheet, seconds);
  }
  const int ranks[] = {8, 128, 512};
  for (const MachineData data :
       {MachineData::measured, MachineData::fitted, MachineData::data_sheet})
    for (size_t column = 0; column < 3; ++column) {
      CAPTURE(int(data), column);
      CHECK(std::abs(expected_step_error(data, ranks[column]).error -
                     errors[size_t(data)][column].mean()) <= 0.01);
    }
  CHECK(expected_step_error(MachineData::fitted, 4096).order_only);
  CHECK(!expected_step_error(MachineData::fitted, 1024).order_only);
}

TEST_CASE("a machine's data is measured, fitted, or from its data sheet", "[stages]") {
  for (const char* fitted : {"a100-40gb", "a100-80gb", "a100-80gb-4x100g", "h100-sxm"})
    CHECK(machine_data(find_machine(fitted)) == MachineData::fitted);
  CHECK(machine_data(find_machine("b200")) == MachineData::data_sheet);
  Machine mine = find_machine("a100-80gb");
  mine.rank.attention *= 0.9;
  CHECK(machine_data(mine) == MachineData::data_sheet);
  mine.rank.kernels = {{.kernel = "matmul", .points = {{1, 1, 1}}}};
  CHECK(machine_data(mine) == MachineData::measured);
}

namespace {

const std::string kCallColumns =
    "machine,system,network,collective,ranks,nodes,bytes,microseconds,source\n";
const std::string kStepColumns =
    "program,machine,network,memory_bandwidth,model,case,shape,parameters,layers,heads,width,vocab,"
    "window,ranks,stage,micro_batch,accumulation,recomputed,update_ranks,unlike,milliseconds,"
    "source\n";
const std::string kStep =
    "p,a100-80gb,,,m,,gpt,1000,2,4,64,256,128,8,zero3,2,1,0.5,,,12.5,a paper\n";

std::string call_message(const std::string& row) {
  return sentence_of([&] { read_calls("# a comment\n" + kCallColumns + row + "\n", "calls.csv"); });
}
std::string step_message(std::string row, const std::string& from, const std::string& to) {
  const size_t at = row.find(from);
  REQUIRE(at != std::string::npos);
  return sentence_of([&] { read_steps(kStepColumns + row.replace(at, from.size(), to), "s.csv"); });
}

}  // namespace

TEST_CASE("a table of calls is read with its units", "[stages]") {
  const auto calls = read_calls(
      kCallColumns + "h100-sxm,two nodes,2e11,all_gather,16,2,1048576,250.5,a log\n", "");
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].seconds == Catch::Approx(250.5e-6));
  CHECK(calls[0].bytes == 1 << 20);
  CHECK(calls[0].collective == Collective::all_gather);
  CHECK(calls[0].change.network == 2e11);
  CHECK(with(find_machine("h100-sxm"), calls[0].change).network.bandwidth == 2e11 / 8);
  CHECK(with(find_machine("h100-sxm"), {}).network.bandwidth == 400e9 / 8);
}

TEST_CASE("a mistake in a table of calls is named with its line", "[stages]") {
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,19.54,a log").empty());
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,19.54") ==
        "calls.csv, line 3: there are 8 values for 9 columns");
  CHECK(call_message("h100-sxm,s,,sum,8,1,65536,19.54,a log") ==
        "calls.csv, line 3: collective is 'sum', which is unknown");
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,fast,a log") ==
        "calls.csv, line 3: microseconds must be a number of at least 0.001, not 'fast'");
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,-2,a log").find("-2") != std::string::npos);
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,0.5,2,a log").find("bytes") != std::string::npos);
  CHECK(call_message("h100-sxm,s,,all_reduce,2,4,64,2,a log") ==
        "calls.csv, line 3: 2 ranks on 4 nodes");
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,2,") ==
        "calls.csv, line 3: source is empty");
  CHECK(sentence_of([] { read_calls("machine,system\na,b\n", "c.csv"); }) ==
        "c.csv, line 2: there is no column network");
}

TEST_CASE("a mistake in a table of steps is named with its line", "[stages]") {
  CHECK(step_message(kStep, "12.5", "12.5").empty());
  CHECK(step_message(kStep, "zero3", "zero4") ==
        "s.csv, line 2: stage is 'zero4', which is unknown");
  CHECK(step_message(kStep, "gpt", "moe") == "s.csv, line 2: shape must be gpt or llama, not moe");
  CHECK(step_message(kStep, "0.5", "1.5") == "s.csv, line 2: recomputed is a share, not 1.5");
  CHECK(step_message(kStep, "12.5", "").find("milliseconds") != std::string::npos);
  CHECK(!step_message(kStep, ",2,4,64,", ",2,5,64,").empty());  // 5 heads do not divide 64
}

TEST_CASE("the shipped tables say what was left out, and name machines that are shipped",
          "[stages]") {
  for (const std::string& table : published_tables()) {
    CHECK(table.starts_with("# Published "));
    CHECK(table.find("# Left out:") < table.find("\nmachine,") + table.find("\nprogram,"));
  }
  CHECK(published_calls().size() > 300);
  CHECK(published_steps().size() > 200);
  std::set<std::string> names;
  for (const PublishedCall& call : published_calls()) {
    names.insert(call.machine);
    CHECK(call.bytes >= 64 << 10);
  }
  for (const PublishedStep& step : published_steps()) names.insert(step.machine);
  for (const std::string& name : names) CHECK(find_machine(name).name == name);
}

// From the sources themselves: dgxc-benchmarking, nccl/README.md; llm-foundry's table, MPT-7b on 8
// H100, 48 sequences of 2048 tokens; Megatron-LM's Table 2.
TEST_CASE("shipped rows have the values of their sources", "[stages]") {
  const auto call = std::ranges::find_if(published_calls(), [](const PublishedCall& c) {
    return c.system == "DGX H100" && c.bytes == int64_t(1) << 28;
  });
  REQUIRE(call != published_calls().end());
  const double bus = double(call->bytes) * 1.75 / call->seconds;
  CHECK(bus == Catch::Approx(422e9).epsilon(0.005));

  const auto step = std::ranges::find_if(published_steps(), [](const PublishedStep& s) {
    return s.model == "MPT-7b" && s.machine == "h100-sxm" && s.ranks == 8 &&
           s.shape.block_size == 2048;
  });
  REQUIRE(step != published_steps().end());
  const double per_rank = double(step->micro_batch * step->accumulation * 2048) / step->seconds;
  CHECK(per_rank == Catch::Approx(10643).epsilon(0.005));
}

// No link carries more than its data sheet says; sums in the switch send a part of what
// nccl-tests counts, and two nodes send each sum once.
TEST_CASE("no published call is faster than its links allow", "[stages]") {
  for (const PublishedCall& c : published_calls()) {
    const Machine m = with(find_machine(c.machine), c.change);
    const double bus = double(c.bytes) * link_factor(c.collective, c.ranks) / c.seconds;
    CAPTURE(c.system, name(c.collective), c.bytes, bus);
    const bool sums = c.collective == Collective::all_reduce;
    CHECK(bus < m.link.bandwidth * (sums && m.link.switch_sums > 0 ? 2 : 1));
    if (c.nodes > 1)
      CHECK(bus < m.network.ports * m.network.bandwidth * (sums && c.nodes == 2 ? 2 : 1));
  }
}
