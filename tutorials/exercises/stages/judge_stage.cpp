#include "tutorials/exercises/stages/judge_stage.h"

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

template <int number>
Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const StageCase c = stage_case(kStages[number], check.name, options);
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

Exercise stage_exercise(StageKind stage) {
  Exercise e;
  e.checks = stage_checks();
  e.records_events = true;
  e.headers = {"stages/stage.h", "tensor/kernels.h"};
  e.functions = {"zl::Stage::", "zl::FlatOptimizer::", "zl::kernel::", "zl::Unit::numel"};
  static constexpr const char* kShards[] = {"", "shard the optimizer state",
                                            "shard the gradients too", "shard the parameters too"};
  static constexpr decltype(e.judge) kJudges[] = {nullptr, judge<1>, judge<2>, judge<3>};
  const int number = stage_number(stage);
  e.number = 4 + number;
  e.name = str("0", e.number, "_", name(stage));
  e.title = str("ZeRO-", number, ": ", kShards[number]);
  e.defines = {str("zl::stage_", name(stage), "()")};
  e.judge = kJudges[number];
  return e;
}

}  // namespace zl::exercises
