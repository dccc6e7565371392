#include <algorithm>

#include "stages/diagnosis/diagnosis.h"
#include "tutorials/exercises/stages/evidence.h"

namespace zl::exercises {
namespace {

std::vector<FlatValues> of_ranks(const StageEvidence& e, const std::string& what) {
  std::vector<FlatValues> all;
  for (int r = 0; r < e.c.ranks; ++r)
    all.emplace_back(e.seen.of(what, r).begin(), e.seen.of(what, r).end());
  return all;
}

double coarse(const StageCase& c) { return c.dtype == Dtype::bf16 ? 2e-2 : 1e-4; }

// A call that leaves something in memory, or takes memory that is not zero, may be the cause.
[[noreturn]] void fail_bits(const StageEvidence& e, const std::string& meaning,
                            const std::string& evidence) {
  check_each_call(e);
  fail(meaning, evidence);
}

void check_number(const StageEvidence& e, const char* list, size_t step, double must,
                  const std::string& meaning) {
  const double is = e.seen.list(list).at(step);
  if (e.exact ? is == must : std::abs(is - must) <= 1e-4 * std::abs(must)) return;
  fail_bits(e, meaning, str("the ", list, " of step ", step + 1, compared(is, must)));
}

// The calls of rank 0 may say more about a wrong gradient than its values.
[[noreturn]] void fail_of_gradient(const StageEvidence& e, const Diagnosis& d) {
  const std::vector<StageCall> calls = e.calls(0);
  const auto count = [&](const char* function) {
    return std::ranges::count_if(calls, [&](const StageCall& call) { return call.is(function); });
  };
  const std::vector<SentRow> sent = e.sent(0);
  if (d.meaning.starts_with("each rank has the gradient of its local data only") &&
      std::ranges::count(sent, Purpose::gradient, &SentRow::purpose) > 0)
    fail(
        "the gradient shard was read before its reduction had finished: the values of a "
        "collective are there when its Work has been waited for, in after_reduce",
        d.evidence);
  if (d.meaning.starts_with("only the last micro-batch's gradient is there") &&
      count("reduce_gradient") < count("before_backward"))
    fail(
        "only the last micro-batch's gradient is there: earlier ones were never reduced; where "
        "each begins with a new full gradient, reduces_every_micro_batch() must be true",
        d.evidence);
  fail_bits(e, d.meaning, d.evidence);
}

void check_gradient(const StageEvidence& e, const FlatLayout& layout,
                    const std::vector<std::vector<FlatValues>>& alone, const FlatValues& must) {
  const std::vector<FlatValues> shards = of_ranks(e, "gradient");
  for (int r = 0; r < e.c.ranks; ++r)
    if (shards[size_t(r)].size() * size_t(e.c.ranks) != size_t(layout.size()))
      fail("the gradient shard of a rank has the wrong size",
           str("rank ", r, " has ", shards[size_t(r)].size(), " elements, must have ",
               layout.size() / e.c.ranks));
  const Diagnosis d = diagnose_gradient({layout, alone, coarse(e.c)}, shards);
  if (d.found()) fail_of_gradient(e, d);
  std::vector<FlatValues> right;
  for (int r = 0; r < e.c.ranks; ++r) right.push_back(layout.shards(must, r));
  if (e.exact && shards != right)
    fail(
        "the gradient is right but for rounding: values are added in another order than in this "
        "stage");
}

void check_weights(const StageEvidence& e, const FlatLayout& layout, const std::string& what,
                   const FlatValues& before, const FlatValues& after) {
  const std::vector<FlatValues> weights = of_ranks(e, what);
  const Diagnosis d = diagnose_weights({layout, before, after, coarse(e.c) / 100}, weights);
  if (d.found()) fail(d.meaning, d.evidence);
  if (e.exact && std::ranges::count(weights, after) < e.c.ranks)
    fail("the updated parameters are right but for rounding");
}

}  // namespace

void check_bits(const StageEvidence& e) {
  const auto data = course_data(e.c);
  const TrainingSpec spec = training_spec(e.c, *data);
  PlainTraining plain(spec);
  const FlatLayout& layout = plain.layout();
  const auto alone = plain.gradients_alone();
  const FlatValues before = plain.weights();
  for (size_t step = 0; step < size_t(e.c.steps); ++step) {
    const PlainStep must = plain.step(spec.engine.optimizer.lr);
    const bool first = step == 0;
    const std::string right = str("step ", step, " is right, but ");
    check_number(e, "loss", step, must.loss,
                 !first
                     ? right + "the next forward pass uses other parameters than the updated ones"
                 : std::isnan(e.seen.number("loss"))
                     ? "the first forward pass has NaN: it uses parameters that were never "
                       "written; an all-gather needs this rank's shard in its place first"
                     : "the first forward pass is wrong, before any gradient: it uses wrong "
                       "parameters");
    if (first) check_gradient(e, layout, alone, must.gradient);
    check_number(e, "norm", step, must.grad_norm,
                 first ? "the gradient norm is wrong, although the gradient is right"
                       : right +
                             "the gradient of the next step is not: something of the step "
                             "before is left in a buffer");
    check_weights(e, layout, str("weights ", step + 1), before, plain.weights());
  }
}

}  // namespace zl::exercises
