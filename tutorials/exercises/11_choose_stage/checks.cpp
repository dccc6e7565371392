#include <algorithm>

#include "tensor/error.h"
#include "tutorials/exercises/11_choose_stage/numbers.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {
namespace {

using namespace choose_stage_checks;

const std::vector<Check> kChecks = {
    {kKept, "kept", 15},     {kMixed, "kept", 10},   {kPeak, "peak", 15},
    {kSent, "sent", 15},     {kMicro, "sent", 10},   {kSeconds, "seconds", 10},
    {kChoice, "choice", 15}, {kExact, "choice", 10},
};
constexpr const char* kStageNames[] = {"ddp", "zero1", "zero2", "zero3"};

Verdict failed(std::string meaning, std::string details) {
  return {.passed = false, .meaning = std::move(meaning), .details = std::move(details)};
}

std::string text(const ChoiceCase& c, Asked asked) {
  const Training& t = c.training;
  std::string all =
      str(t.ranks, t.ranks == 1 ? " rank, " : " ranks, ", t.mixed ? "mixed precision" : "fp32",
          ", micro-batches: ", t.micro_batches, "\nunits, root first:");
  for (const int64_t n : t.units) all += str(" ", n);
  if (asked == Asked::seconds)
    all += str("\n", c.cluster.gpus_per_node, " GPUs per node, ", c.cluster.node_bandwidth,
               " B/s in a node, ", c.cluster.network_bandwidth, " B/s between nodes\n", t.tokens,
               " tokens, ", c.cluster.rate, " operations per second");
  if (asked != Asked::choice) return all;
  all += str("\nmemory ", c.cluster.memory, "; at the peak");
  for (int stage = 0; stage < 4; ++stage)
    all += str(stage > 0 ? ", " : " ", kStageNames[stage], " ",
               library_numbers(c.training, stage).peak);
  return all;
}

std::string shown(Asked asked, double number) {
  if (asked == Asked::seconds) return str(number, " s");
  if (asked != Asked::choice) return str(int64_t(number), " B");
  return number >= 0 && number <= 3 ? kStageNames[int(number)]
         : number == -1             ? "none"
                                    : str("stage ", number);
}

const char* general(Asked asked) {
  switch (asked) {
    case Asked::kept: return "the bytes between steps are wrong";
    case Asked::peak: return "the bytes at the peak are wrong";
    case Asked::sent: return "the bytes that are sent are wrong";
    case Asked::seconds: return "the time of a step is wrong";
    case Asked::choice: return "another stage is to be chosen";
  }
  return "";
}

// What is asked for each answer, in order.
struct Question {
  const ChoiceCase* c;
  int stage;
};

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const std::vector<ChoiceCase> cases = choice_cases(check.name, options.seed);
  const Asked asked = asked_by(check.name);
  std::vector<Question> questions;
  for (const ChoiceCase& c : cases)
    for (int stage = 0; stage < (asked == Asked::choice ? 1 : 4); ++stage)
      questions.push_back({&c, stage});
  const auto found = record.numbers.find("answers");
  if (found == record.numbers.end() || found->second.size() != questions.size())
    return failed("there are not as many answers as questions", "");
  const std::vector<double>& got = found->second;
  const auto right = [&](const Question& q) { return right_number(asked, *q.c, q.stage); };
  size_t k = 0;
  while (k < questions.size() && equal(got[k], right(questions[k]))) ++k;
  if (k == questions.size()) return {.passed = true};
  const Question& q = questions[k];
  const std::string details =
      str(text(*q.c, asked), "\n", asked == Asked::choice ? "" : str(kStageNames[q.stage], ", "),
          "yours: ", shown(asked, got[k]), ", expected: ", shown(asked, right(q)));
  for (const Mistake& mistake : kMistakes) {
    const auto slipped = [&](const Question& one, double x) {
      return equal(x, number(asked, *one.c, one.stage, mistake.slip));
    };
    if (std::ranges::equal(questions, got, slipped)) return failed(mistake.meaning, details);
  }
  return failed(general(asked), details);
}

}  // namespace

Exercise exercise_11() {
  return {.number = 11,
          .name = "11_choose_stage",
          .title = "Choose a stage for a machine",
          .checks = kChecks,
          .headers = {"tutorials/exercises/11_choose_stage/choose_stage.h"},
          .functions = {},
          .defines = {"zl::exercises::kept_bytes(", "zl::exercises::peak_bytes(",
                      "zl::exercises::sent_bytes(", "zl::exercises::step_seconds(",
                      "zl::exercises::choose_stage("},
          .judge = judge};
}

}  // namespace zl::exercises
