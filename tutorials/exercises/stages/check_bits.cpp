#include <algorithm>

#include "stages/diagnosis/diagnosis.h"
#include "tutorials/exercises/stages/evidence.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

// Minus zero becomes zero: which of the two a sum of zeros gives says nothing about a stage.
FlatValues floats(const std::vector<double>& values) {
  FlatValues all;
  for (const double value : values) all.push_back(float(value) + 0.0f);
  return all;
}

std::vector<FlatValues> of_ranks(const StageEvidence& e, const std::string& what) {
  std::vector<FlatValues> all;
  for (int r = 0; r < e.c.ranks; ++r) all.push_back(floats(e.seen.of(what, r)));
  return all;
}

double coarse(const StageCase& c) { return c.dtype == Dtype::bf16 ? 2e-2 : 1e-4; }

void check_number(const StageEvidence& e, const char* list, size_t step, double must,
                  const std::string& meaning) {
  const double is = e.seen.list(list).at(step);
  if (e.exact ? is == must : std::abs(is - must) <= 1e-4 * std::abs(must)) return;
  if (step > 0) check_each_call(e);  // something of the step before is left in memory
  fail(meaning,
       str("the ", list, " of step ", step + 1, cli::format(" is %.9g, must be %.9g", is, must)));
}

// What the calls of rank 0 say about a wrong gradient beyond its values.
std::string with_calls(const StageEvidence& e, const std::string& meaning) {
  const std::vector<StageCall> calls = e.calls(0);
  const auto count = [&](const char* function) {
    return std::ranges::count_if(calls, [&](const StageCall& call) { return call.is(function); });
  };
  const bool reduces = std::ranges::any_of(
      e.sent(0), [](const SentRow& row) { return row.purpose == Purpose::gradient; });
  if (meaning.starts_with("each rank has the gradient of its local data only") && reduces)
    return "the gradient shard was read before its reduction had finished: the values of a "
           "collective are there when its Work has been waited for, in after_reduce";
  if (meaning.starts_with("only the last micro-batch's gradient is there") &&
      count("reduce_gradient") < count("before_backward"))
    return "only the last micro-batch's gradient is there: earlier ones were never reduced; where "
           "each begins with a new full gradient, reduces_every_micro_batch() must be true";
  return meaning;
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
  if (d.found()) check_uses(e);  // new memory of another use is not zero
  if (d.found()) fail(with_calls(e, d.meaning), d.evidence);
  for (int r = 0; r < e.c.ranks && e.exact; ++r) {
    const FlatValues is = shards[size_t(r)], right = layout.shards(must, r);
    if (const auto at = std::ranges::mismatch(is, right).in1 - is.begin(); at < std::ssize(is))
      fail(
          "the gradient is right but for rounding: values are added in another order than in this "
          "stage",
          str("the gradient of ", layout.text(layout.position(r, at)), " on rank ", r));
  }
}

void check_weights(const StageEvidence& e, const FlatLayout& layout, const std::string& what,
                   const FlatValues& before, const FlatValues& after) {
  const std::vector<FlatValues> weights = of_ranks(e, what);
  const Diagnosis d = diagnose_weights({layout, before, after, coarse(e.c) / 100}, weights);
  if (d.found()) fail(d.meaning, d.evidence);
  for (int r = 0; r < e.c.ranks && e.exact; ++r)
    if (weights[size_t(r)] != after)
      fail("the updated parameters are right but for rounding",
           first_difference(layout, weights[size_t(r)], after, r));
}

}  // namespace

void check_bits(const StageEvidence& e) {
  const auto data = course_data(e.c);
  const TrainingSpec spec = training_spec(e.c, *data);
  PlainTraining plain(spec);
  const FlatLayout& layout = plain.layout();
  if (e.seen.list("loss").size() != size_t(e.c.steps)) fail("the run ended before its last step");
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
