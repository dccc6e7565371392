#include "tutorials/exercises/stages/judge_stage.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <typeinfo>

namespace zl::exercises {
namespace {

const std::vector<Check>& stage_checks() {
  static const std::vector<Check> checks = {
      {"memory at rest", "start", 5},
      {"one rank", "start", 5},
      {"memory after three steps", "start", 5},
      {"bits at 2 ranks", "bits", 10},
      {"bits at 3 ranks", "bits", 15},
      {"traffic", "traffic", 10},
      {"peak", "peak", 15},
      {"gradient of three micro-batches", "accumulation", 5},
      {"bits of three micro-batches", "accumulation", 5},
      {"bytes of three micro-batches", "accumulation", 5},
      {"a unit that runs twice", "models", 5},
      {"unused and frozen parameters", "models", 5},
      {"clipping", "numerics", 3},
      {"bf16", "numerics", 4},
      {"large buckets", "numerics", 3},
  };
  return checks;
}

Verdict first_failure(const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts)
    if (!verdict.passed) return verdict;
  return passed();
}

Verdict judge_check(const Check& check, const StageEvidence& evidence) {
  if (check.name.starts_with("memory ")) return judge_rest(evidence);
  if (check.name == "traffic") return judge_traffic(evidence);
  if (check.name == "peak") return judge_peak(evidence);
  if (check.name == "a unit that runs twice")
    return first_failure({judge_bits(evidence), judge_each_call(evidence)});
  if (check.name == "one rank") return first_failure({judge_rest(evidence), judge_bits(evidence)});
  if (check.name == "bytes of three micro-batches")
    return first_failure({judge_traffic(evidence), judge_peak(evidence)});
  return judge_bits(evidence);
}

template <StageKind stage>
Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const StageCase c = stage_case(stage, check.name, options);
  const StageEvidence evidence{c, record, options.device == DeviceKind::cpu};
  const Verdict verdict = judge_check(check, evidence);
  if (verdict.passed) return verdict;
  const Verdict uses = judge_uses(evidence);
  return uses.passed ? verdict : uses;
}

}  // namespace

const std::vector<double>& StageEvidence::of_rank(const char* what, int rank) const {
  const auto found = record.numbers.find(str(what, " ", rank));
  require_input(found != record.numbers.end(), "the check measured no ", what, " of rank ", rank);
  return found->second;
}

std::vector<StageCall> StageEvidence::calls(int rank) const {
  return calls_from(of_rank("calls", rank));
}

// "zl::make_zero1(std::vector<…>&, …)": the library has a function of the same name, so the whole
// signature counts.
std::string maker(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> type(
      abi::__cxa_demangle(typeid(MakeStage).name(), nullptr, nullptr, &status), &std::free);
  const std::string text = type.get();
  return "zl::make_" + name + text.substr(text.find(" (") + 1);
}

Exercise stage_exercise(StageKind stage) {
  Exercise e;
  e.checks = stage_checks();
  e.records_events = true;
  e.headers = {"stages/stage.h", "tensor/kernels.h"};
  e.functions = {"zl::Stage::", "zl::FlatOptimizer::", "zl::kernel::", "zl::Unit::numel"};
  switch (stage) {
    case StageKind::zero1:
      e.number = 5, e.defines = {maker("zero1")};
      e.name = "05_zero1", e.title = "ZeRO-1: shard the optimizer state";
      e.judge = judge<StageKind::zero1>;
      break;
    case StageKind::zero2:
      e.number = 6, e.defines = {maker("zero2")};
      e.name = "06_zero2", e.title = "ZeRO-2: shard the gradients too";
      e.judge = judge<StageKind::zero2>;
      break;
    default:
      e.number = 7, e.defines = {maker("zero3")};
      e.name = "07_zero3", e.title = "ZeRO-3: shard the parameters too";
      e.judge = judge<StageKind::zero3>;
  }
  return e;
}

}  // namespace zl::exercises
