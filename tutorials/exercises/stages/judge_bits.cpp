#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tutorials/exercises/stages/judge_stage.h"

namespace zl::exercises {
namespace {

// Minus zero becomes zero: which of the two a sum of zeros gives says nothing about a stage.
FlatValues floats(const std::vector<double>& values) {
  FlatValues all;
  for (const double value : values) all.push_back(float(value) + 0.0f);
  return all;
}

// What the plain loop has after each step.
struct Reference {
  std::vector<std::vector<FlatValues>> alone;  // gradients of step 1
  FlatValues before, weights, last_weights;
  std::vector<PlainStep> steps;
};

Reference reference_of(const TrainingSpec& spec, PlainTraining& plain) {
  Reference reference;
  reference.alone = plain.gradients_alone();
  reference.before = plain.weights();
  for (int64_t step = 0; step < spec.steps; ++step) {
    reference.steps.push_back(plain.step(spec.engine.optimizer.lr));
    if (step == 0) reference.weights = plain.weights();
  }
  reference.last_weights = plain.weights();
  return reference;
}

class BitsJudge {
 public:
  explicit BitsJudge(const StageEvidence& evidence)
      : e_(evidence),
        data_(course_data(e_.c)),
        spec_(training_spec(e_.c, *data_)),
        plain_(spec_),
        layout_(plain_.model().units(), e_.c.ranks),
        reference_(reference_of(spec_, plain_)) {}

  Verdict judge() const {
    for (Verdict (BitsJudge::*in_order)() const :
         {&BitsJudge::all_steps, &BitsJudge::first_loss, &BitsJudge::gradient,
          &BitsJudge::first_norm, &BitsJudge::weights, &BitsJudge::later_steps,
          &BitsJudge::last_weights}) {
      if (const Verdict v = (this->*in_order)(); !v.passed) return v;
      if (!e_.c.bits && in_order == &BitsJudge::gradient) break;
    }
    return passed();
  }

 private:
  // How far a right result may be from the plain loop's: not at all, but on another device.
  bool equal(double a, double b) const {
    return e_.exact ? a == b : std::abs(a - b) <= 1e-4 * std::abs(b);
  }
  double coarse() const { return e_.c.dtype == Dtype::bf16 ? 2e-2 : 1e-4; }

  Verdict all_steps() const {
    const auto loss = e_.record.numbers.find("loss");
    if (loss == e_.record.numbers.end() || loss->second.size() != reference_.steps.size())
      return {false, "the run ended before its last step", ""};
    return passed();
  }

  Verdict number_at(const char* what, size_t step, double is, double must,
                    const std::string& meaning) const {
    if (equal(is, must)) return passed();
    char text[160];
    std::snprintf(text, sizeof text, "the %s of step %zu is %.9g, must be %.9g", what, step + 1, is,
                  must);
    return {false, meaning, text};
  }

  double measured(const char* what, size_t step) const {
    return e_.record.numbers.at(what).at(step);
  }

  Verdict first_loss() const {
    const double loss = measured("loss", 0);
    return number_at("loss", 0, loss, reference_.steps[0].loss,
                     std::isnan(loss)
                         ? "the first forward pass has NaN: it uses parameters that were never "
                           "written; an all-gather needs this rank's shard in its place first"
                         : "the first forward pass is wrong, before any gradient: it uses wrong "
                           "parameters");
  }

  Verdict gradient() const {
    std::vector<FlatValues> shards;
    for (int r = 0; r < e_.c.ranks; ++r) {
      shards.push_back(floats(e_.of_rank("gradient", r)));
      if (shards.back().size() * size_t(e_.c.ranks) != size_t(layout_.size()))
        return {false, "the gradient shard of a rank has the wrong size",
                str("rank ", r, " has ", shards.back().size(), " elements, must have ",
                    layout_.size() / e_.c.ranks)};
    }
    const Diagnosis d = diagnose_gradient({layout_, reference_.alone, coarse()}, shards);
    if (d.found()) return {false, with_calls(d.meaning), d.evidence};
    if (!e_.exact) return passed();
    const FlatValues bound = e_.c.bits ? FlatValues(size_t(layout_.size()), 0.0f) : rounding();
    for (int r = 0; r < e_.c.ranks; ++r) {
      const FlatValues must = layout_.shards(reference_.steps[0].gradient, r);
      const FlatValues allowed = layout_.shards(bound, r);
      for (size_t i = 0; i < must.size(); ++i)
        if (std::abs(shards[size_t(r)][i] - must[i]) > allowed[i])
          return {false,
                  e_.c.bits ? "the gradient is right but for rounding: values are added in another "
                              "order than in this stage"
                            : "the gradient is further from ddp's than rounding allows",
                  str("the gradient of ", layout_.text(layout_.position(r, int64_t(i))),
                      " on rank ", r)};
    }
    return passed();
  }

  // How far two orders of adding may take an element apart: 2 A N 2^-24 times the sum of |g|.
  FlatValues rounding() const {
    FlatValues bound(size_t(layout_.size()), 0.0f);
    for (const auto& of_ranks : reference_.alone)
      for (const FlatValues& gradient : of_ranks)
        for (size_t i = 0; i < bound.size(); ++i)
          bound[i] += std::abs(gradient[i]) * float(e_.c.micro_batches) * 0x1p-23f;
    return bound;
  }

  // What the calls of rank 0 say about a wrong gradient beyond its values.
  std::string with_calls(const std::string& meaning) const {
    const auto count = [this](StageFunction function) {
      return std::ranges::count(e_.calls(0), function, &StageCall::function);
    };
    if (e_.c.block_twice && meaning.starts_with("in block0 only"))
      return meaning + " (block0 runs twice in each pass)";
    if (meaning.starts_with("each rank has the gradient of its local data only") && reduces())
      return "the gradient shard was read before its reduction had finished: the values of a "
             "collective are there when its Work has been waited for, in after_reduce";
    if (meaning.starts_with("only the last micro-batch's gradient is there") &&
        count(StageFunction::reduce_gradient) < count(StageFunction::before_backward))
      return "only the last micro-batch's gradient is there: earlier ones were never reduced; "
             "where "
             "each begins with a new full gradient, reduces_every_micro_batch() must be true";
    return meaning;
  }

  bool reduces() const {
    const std::vector<double>& rows = e_.of_rank("traffic", 0);
    for (size_t at = 1; at < rows.size(); at += 5)
      if (Purpose(int(rows[at])) == Purpose::gradient) return true;
    return false;
  }

  Verdict first_norm() const {
    return number_at("gradient norm", 0, measured("norm", 0), reference_.steps[0].grad_norm,
                     "the gradient norm is wrong, although the gradient is right");
  }

  bool kept_shards_are(const FlatValues& full) const {
    for (int r = 0; r < e_.c.ranks; ++r)
      if (floats(e_.of_rank("kept weights", r)) != layout_.shards(full, r)) return false;
    return true;
  }

  Verdict weights_are(const char* what, const FlatValues& before, const FlatValues& after,
                      const std::string& fallback) const {
    std::vector<FlatValues> of_ranks;
    for (int r = 0; r < e_.c.ranks; ++r) of_ranks.push_back(floats(e_.of_rank(what, r)));
    const Diagnosis d = diagnose_weights({layout_, before, after, coarse() / 100}, of_ranks);
    if (d.found() && e_.c.stage == StageKind::zero3 && kept_shards_are(after))
      return {false,
              "the full parameters are not those that the ranks keep: they must be gathered again "
              "before every forward and backward pass",
              d.evidence};
    if (d.found()) return {false, d.meaning, d.evidence};
    if (!e_.exact) return passed();
    for (int r = 0; r < e_.c.ranks; ++r)
      if (of_ranks[size_t(r)] != after)
        return {false, fallback, first_difference(layout_, of_ranks[size_t(r)], after, r)};
    return passed();
  }

  Verdict weights() const {
    return weights_are("weights", reference_.before, reference_.weights,
                       "the updated parameters are right but for rounding");
  }

  Verdict later_steps() const {
    for (size_t step = 1; step < reference_.steps.size(); ++step) {
      const PlainStep& must = reference_.steps[step];
      const std::string right = str("step ", step, " is right, but ");
      Verdict v = number_at("loss", step, measured("loss", step), must.loss,
                            right +
                                "the next forward pass uses other parameters than the updated "
                                "ones");
      if (v.passed)
        v = number_at("gradient norm", step, measured("norm", step), must.grad_norm,
                      right +
                          "the gradient of the next step is not: something of the step before "
                          "is left in a buffer");
      if (!v.passed) return v;
    }
    return passed();
  }

  Verdict last_weights() const {
    return weights_are("last weights", reference_.before, reference_.last_weights,
                       "the parameters at the end are right but for rounding");
  }

  StageEvidence e_;
  std::unique_ptr<BatchSource> data_;
  TrainingSpec spec_;
  PlainTraining plain_;
  FlatLayout layout_;
  Reference reference_;
};

}  // namespace

Verdict judge_bits(const StageEvidence& evidence) { return BitsJudge(evidence).judge(); }

}  // namespace zl::exercises
