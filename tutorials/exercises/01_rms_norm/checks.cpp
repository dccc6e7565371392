#include <algorithm>
#include <cmath>

#include "tensor/error.h"
#include "tutorials/exercises/01_rms_norm/formulas.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {
namespace {

using namespace rms_norm_checks;

const std::vector<Check> kChecks = {
    {kOneRow, "value", 10},        {kRows, "value", 10},
    {kShapes, "shapes", 5},        {kWeight, "gradients", 10},
    {kX, "gradients", 10},         {kF32, "gradients", 5},
    {kTwice, "contributions", 10}, {kResidual, "contributions", 10},
    {kFrozen, "inputs", 5},        {kConstant, "inputs", 4},
    {kConstants, "inputs", 3},     {kNoTape, "inputs", 3},
    {kKept, "memory", 10},         {kResharded, "memory", 5},
};

Verdict failed(const std::string& meaning, const std::string& details = "") {
  return {.passed = false, .meaning = meaning, .details = details};
}

// ---- lists of numbers ------------------------------------------------------------------------

// Rounding: f32 has 2^-24; in double the error of the central differences is larger.
double tolerance(const Case& c) { return c.dtype == Dtype::f32 ? 3e-5 : 1e-7; }

// By element: the largest value of its row.
double size_at(const Case& c, const Numbers& expected, size_t i) {
  const size_t C = size_t(c.C()), begin = i / C * C;
  double most = 0;
  for (size_t k = begin; k < std::min(begin + C, expected.size()); ++k)
    most = std::max(most, std::abs(expected[k]));
  return most;
}

bool same(const Case& c, const Numbers& got, const Numbers& expected, size_t i) {
  return std::abs(got[i] - expected[i]) <= tolerance(c) * size_at(c, expected, i);
}

std::vector<size_t> differing(const Case& c, const Numbers& got, const Numbers& expected) {
  std::vector<size_t> which;
  for (size_t i = 0; i < expected.size(); ++i)
    if (!same(c, got, expected, i)) which.push_back(i);
  return which;
}

bool equal(const Case& c, const Numbers& got, const Numbers& expected) {
  return got.size() == expected.size() && differing(c, got, expected).empty();
}

std::string element(const Case& c, const std::string& name, const Numbers& list, size_t i) {
  const size_t C = size_t(c.C());
  if (list.size() <= C) return str(name, "[", i, "]");
  return str(name, "[row ", i / C, "][", i % C, "]");
}

std::string evidence(const Case& c, const std::string& name, const Numbers& got,
                     const Numbers& expected) {
  const std::vector<size_t> which = differing(c, got, expected);
  const size_t i = which.front();
  std::string text = str(element(c, name, expected, i), " is ", got[i], ", expected ", expected[i]);
  if (expected[i] != 0 && std::isfinite(got[i])) text += str(" (ratio ", got[i] / expected[i], ")");
  return text + str("; ", which.size(), " of ", expected.size(), " values differ; x is ",
                    to_string(c.shape));
}

// "every value is 3.00 x the right one", if so.
std::string constant_ratio(const Case& c, const std::string& what, const Numbers& got,
                           const Numbers& expected) {
  const size_t largest =
      size_t(std::max_element(expected.begin(), expected.end(),
                              [](double a, double b) { return std::abs(a) < std::abs(b); }) -
             expected.begin());
  const double ratio = got[largest] / expected[largest];
  Numbers scaled = expected;
  for (double& value : scaled) value *= ratio;
  if (!std::isfinite(ratio) || !equal(c, got, scaled)) return "";
  if (ratio == 0) return str(what, " is 0 everywhere");
  return str("every value of ", what, " is ", ratio, " x the right one; C is ", c.C(), ", sqrt(C) ",
             std::sqrt(double(c.C())), ", the number of rows ", c.rows());
}

struct Hypothesis {
  Numbers values;
  std::string meaning;
};

// `what` is for sentences ("the gradient of x"), `name` for elements ("dx").
Verdict judge_list(const Case& c, const std::string& what, const std::string& name,
                   const Numbers& got, const Numbers& expected,
                   const std::vector<Hypothesis>& hypotheses) {
  if (got.size() != expected.size())
    return failed(str(what, " has ", got.size(), " values, not ", expected.size()),
                  got.empty() ? str("Nothing was added to ", what, ".") : "");
  if (equal(c, got, expected)) return {.passed = true};
  const std::string numbers = evidence(c, name, got, expected);
  const bool nan = std::ranges::any_of(got, [](double value) { return std::isnan(value); });
  if (nan)
    return failed(str(what,
                      " has NaN: new memory holds NaN in this check, so some of it was read or "
                      "left without being set"),
                  numbers);
  for (const Hypothesis& hypothesis : hypotheses)
    if (equal(c, got, hypothesis.values)) return failed(hypothesis.meaning, numbers);
  const std::string ratio = constant_ratio(c, what, got, expected);
  return failed(ratio.empty() ? str(what, " is wrong") : ratio, numbers);
}

// ---- values and gradients --------------------------------------------------------------------

const Numbers& numbers(const Record& record, const std::string& name) {
  static const Numbers none;
  const auto found = record.numbers.find(name);
  return found == record.numbers.end() ? none : found->second;
}

double number(const Record& record, const std::string& name) {
  const Numbers& list = numbers(record, name);
  return list.size() == 1 ? list[0] : NAN;
}

Numbers plus(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Program program(const std::string& check, const Case& c) {
  return [&c, check](const Numbers& x, const Numbers& weight) {
    const Numbers y = value(c, x, weight);
    if (check == kTwice) return value(c, y, weight);
    return check == kResidual ? plus(y, x) : y;
  };
}

Verdict judge_value(const std::string& check, const Case& c, const Record& record) {
  const Numbers shape(c.shape.begin(), c.shape.end());
  if (numbers(record, "y shape") != shape)
    return failed(str("y does not have the shape of x, ", to_string(c.shape)));
  if (number(record, "y is f64") != double(c.dtype == Dtype::f64))
    return failed(str("y does not have the type of x, ", name(c.dtype)));
  std::vector<Hypothesis> hypotheses;
  for (const auto& [mistake, text] : kValueMistakes)
    hypotheses.push_back({value(c, c.x, c.weight, mistake), text});
  const Numbers expected =
      check == kTwice ? program(check, c)(c.x, c.weight) : value(c, c.x, c.weight);
  return judge_list(c, "y", "y", numbers(record, "y"), expected, hypotheses);
}

Verdict judge_recorded(const Record& record) {
  if (number(record, "recorded") != 1)
    return failed("nothing was recorded, although an input needs a gradient",
                  "The result must be tape->record(y, backward). An input without a tape does not "
                  "change that: take the tape of the other input.");
  const auto thrown = record.texts.find("backward");
  if (thrown != record.texts.end())
    return failed("the backward function breaks a contract of the tape", thrown->second);
  return {.passed = true};
}

// What the gradient of x may be if it is wrong.
std::vector<Hypothesis> wrong_dx(const std::string& check, const Case& c, const Numbers& dx) {
  std::vector<Hypothesis> list;
  if (check == kResidual) {
    const Numbers part = gradients(c, c.x, c.dy).x;
    list.push_back({part,
                    "the gradient that x already had is lost: the slot of x says Write::add, but "
                    "the values were set"});
    list.push_back({c.dy, "nothing of this op's gradient reaches x where x had one already"});
    list.push_back({plus(part, part),
                    "dy was overwritten, although the gradient of x shares its memory: write only "
                    "into the slot of x, or ask dy.unique() first"});
    list.push_back({plus(plus(part, c.dy), c.dy), "the gradient that x already had counts twice"});
  }
  if (check != kTwice && check != kResidual)
    for (const auto& [mistake, text] : kXMistakes)
      list.push_back({gradients(c, c.x, c.dy, mistake).x, text});
  list.push_back({Numbers(dx.size(), 0), "the gradient of x is 0 everywhere"});
  return list;
}

// `added`: what backward must add to the gradient of weight.
std::vector<Hypothesis> wrong_dweight(const std::string& check, const Case& c,
                                      const Numbers& added) {
  std::vector<Hypothesis> list = {
      {added,
       "what the gradient of weight held before is lost: backward must add to it, as its slot says "
       "(Write::add); other micro-batches have added before"},
      {c.before, "nothing was added to the gradient of weight"}};
  if (check == kTwice) {
    const Numbers y = value(c, c.x, c.weight);
    const Gradients outer = gradients(c, y, c.dy), inner = gradients(c, c.x, outer.x);
    const char* lost =
        "weight is used twice, but its gradient holds one contribution: the second overwrites the "
        "first; add, as the slot of weight says (Write::add)";
    for (const Numbers& part : {inner.weight, outer.weight}) {
      list.push_back({part, lost});
      list.push_back({plus(c.before, part), lost});
    }
  } else {
    for (const auto& [mistake, text] : kWeightMistakes) {
      const Numbers wrong = gradients(c, c.x, c.dy, mistake).weight;
      list.push_back({wrong, text});
      list.push_back({plus(c.before, wrong), text});
    }
  }
  return list;
}

Verdict judge_gradients(const std::string& check, const Case& c, const Record& record) {
  const Verdict recorded = judge_recorded(record);
  if (!recorded.passed) return recorded;
  const Gradients right = differences(c, program(check, c));
  const bool weight = check != kX && check != kResidual, x = check != kWeight && check != kConstant;
  const Numbers dweight = check == kFrozen ? c.before : plus(c.before, right.weight);
  if (weight) {
    const Verdict verdict =
        judge_list(c, "the gradient of weight", "dweight", numbers(record, "dweight"), dweight,
                   wrong_dweight(check, c, right.weight));
    if (!verdict.passed && check == kTwice)
      return failed(
          verdict.meaning,
          verdict.details + "; if the gradient of x is wrong elsewhere, repair that first");
    if (!verdict.passed) return verdict;
  }
  if (!x) return {.passed = true};
  return judge_list(c, "the gradient of x", "dx", numbers(record, "dx"), right.x,
                    wrong_dx(check, c, right.x));
}

// ---- tape and memory -------------------------------------------------------------------------

Verdict judge_shapes(const Case& c, const Record& record) {
  const Numbers& refused = numbers(record, "refused");
  const Shape shapes[] = {{c.C(), 1}, {c.C() - 1}};
  for (size_t i = 0; i < refused.size() && i < 2; ++i)
    if (refused[i] != 1)
      return failed("a weight that does not fit x is accepted",
                    str("x is ", to_string(c.shape), ", weight ", to_string(shapes[i]),
                        "; rms_norm must throw std::invalid_argument, as require() does"));
  return {.passed = refused.size() == 2};
}

Verdict judge_no_tape(const Case& c, const Record& record) {
  if (number(record, "has a tape") != 0)
    return failed("without a tape the result must be a constant without a tape");
  const double bytes = double(numel(c.shape) * size_of(c.dtype)), kept = number(record, "kept");
  if (kept != bytes)
    return failed("without a tape nothing but y may be left",
                  str(kept, " B of activations are live after the call; y has ", bytes, " B"));
  return judge_value(kNoTape, c, record);
}

Verdict judge_constants(const Case& c, const Record& record) {
  if (number(record, "entries") != 0)
    return failed(
        "an entry was recorded although neither x nor weight needs a gradient",
        "Frozen layers would keep activations for a backward function that has nothing to "
        "do. Return Var::constant(tape, y).");
  return judge_value(kConstants, c, record);
}

Verdict judge_kept(const Case& c, const Record& record) {
  if (const Verdict recorded = judge_recorded(record); !recorded.passed) return recorded;
  const double row = double(size_of(c.dtype)), statistics = double(c.rows()) * row,
               full = double(numel(c.shape)) * row, kept = number(record, "kept"),
               heap = number(record, "heap");
  const std::string sizes =
      str("The op keeps ", kept, " B of activations beside x; 1/rms of ", c.rows(), " rows is ",
          statistics, " B, a tensor like x ", full, " B.");
  if (heap > 2048)
    return failed(
        "the backward function keeps values outside the ledger, in a std::vector or the "
        "like: keep tensors",
        str("It keeps ", heap, " B of the heap. ", sizes));
  if (number(record, "keeps y") == 1)
    return failed("the backward function keeps y: it needs x and 1/rms of each row only", sizes);
  if (number(record, "keeps x") != 1)
    return failed(
        "the backward function does not keep x but a tensor of its size: x is there "
        "anyway for the op before, so that costs its bytes twice",
        sizes);
  if (kept == 0) return failed("1/rms is not kept: backward has to compute it again", sizes);
  if (kept == statistics) return {.passed = true};
  return failed(kept >= full
                    ? "another tensor of the size of x is kept: x and 1/rms of each row are "
                      "enough"
                    : "the bytes that are kept are not those of x and 1/rms of each row",
                sizes);
}

Verdict judge_resharded(const Case& c, const Record& record) {
  const double kept = number(record, "kept of weight");
  if (kept != 0)
    return failed(
        "the backward function keeps the memory of weight, so ZeRO-3 cannot free it after "
        "the forward pass: capture the Var, and call value() in backward",
        str(kept, " B of parameters are live after weight was resharded"));
  return judge_gradients(kF32, c, record);
}

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const Case c = make_case(check.name, options);
  if (check.name == kShapes) return judge_shapes(c, record);
  if (check.name == kConstants) return judge_constants(c, record);
  if (check.name == kNoTape) return judge_no_tape(c, record);
  if (check.name == kKept) return judge_kept(c, record);
  if (check.name == kResharded) return judge_resharded(c, record);
  const Verdict value = judge_value(check.name, c, record);
  if (!value.passed || check.group == "value") return value;
  return judge_gradients(check.name, c, record);
}

}  // namespace

Exercise exercise_01() {
  return {.number = 1,
          .name = "01_rms_norm",
          .title = "RMSNorm: what does backward need?",
          .checks = kChecks,
          .headers = {"tutorials/exercises/01_rms_norm/rms_norm.h", "autograd/tape.h",
                      "tensor/kernels.h", "tensor/tensor.h"},
          .functions = {"zl::Var::", "zl::Tape::", "zl::Tensor::", "zl::kernel::fill",
                        "zl::kernel::copy", "zl::kernel::add", "zl::kernel::accumulate"},
          .defines = {"zl::exercises::rms_norm("},
          .judge = judge};
}

}  // namespace zl::exercises
