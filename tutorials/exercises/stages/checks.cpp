// The checks of exercises 05 to 07, whose answer is one stage file: losses, gradients, norms and
// weights against the plain loop, bytes and traffic against the closed formulas.
#include <algorithm>
#include <map>

#include "stages/diagnosis/diagnosis.h"
#include "stages/predict/closed_form.h"
#include "tutorials/exercises/judge/judge.h"
#include "tutorials/exercises/stages/stage_case.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

using cli::with_commas;

// A record, and the case that it was measured in.
struct StageEvidence {
  StageCase c = stage_case(options());
  const TrainingSpec& spec = c.spec;
  Record seen = observe();
  bool exact = options().device == DeviceKind::cpu;  // the reference is computed there
  double tolerance = spec.engine.precision == Dtype::bf16 ? 2e-2 : 1e-4;

  // What the stage must keep and send, by the closed formulas: nothing of the student's file is
  // used.
  std::unique_ptr<Model> model = spec.new_model();
  std::vector<int64_t> full = padded_unit_sizes(model->units(), spec.ranks);  // [n] of each unit
  PredictionInput input{.options = spec.engine, .ranks = spec.ranks, .units = full};

  // Of one rank: its calls of the stage file's functions, in order of time; what it sent in the
  // whole run.
  std::vector<StageCall> calls(int rank) const { return seen.rows<StageCall>(str("calls ", rank)); }
  std::vector<SentRow> sent(int rank) const { return seen.rows<SentRow>(str("sent ", rank)); }
};

// ---- what each call allocates and frees, and so what a rank keeps and the peak ------------------

// "parameters", "optimizer state"
std::string plural(MemoryUse use) {
  std::string words = name(use);
  std::ranges::replace(words, '_', ' ');
  return words + (use == MemoryUse::parameter || use == MemoryUse::gradient ? "s" : "");
}

// [B] by which a call of a right stage makes a use of memory grow.
int64_t right_growth(const StageEvidence& e, const StageCall& call, MemoryUse use) {
  if (call.unit < 0) return 0;
  const bool allocates = call.is("allocate"), parameter = use == MemoryUse::parameter,
             sharded = parameter ? shards_parameter(e.spec.engine.stage)
                                 : shards_gradient(e.spec.engine.stage);
  const int64_t n = e.full[size_t(call.unit)], shard = n / e.spec.ranks,
                bytes = n * int64_t(size_of(e.spec.engine.precision));
  if (use == MemoryUse::optimizer_state) return allocates ? e.input.optimizer().state * shard : 0;
  if (use == MemoryUse::master_weights) return allocates ? e.input.optimizer().master * shard : 0;
  if (!parameter && use != MemoryUse::gradient) return 0;
  if (allocates) return sharded ? bytes / e.spec.ranks : bytes;
  if (sharded && call.is(parameter ? "unshard" : "before_backward")) return bytes;
  return sharded && call.is(parameter ? "reshard" : "after_reduce") ? -bytes : 0;
}

// "frees no gradients, must free 24,192 B".
std::string growth_text(int64_t is, int64_t must, const std::string& what) {
  const auto verb = [](int64_t bytes) { return bytes < 0 ? "free" : "allocate"; };
  const std::string right =
      must == 0 ? "must not" : str("must ", verb(must), " ", with_commas(std::abs(must)), " B");
  if (is == 0) return str(verb(must), "s no ", what, ", ", right);
  return str(verb(is), "s ", with_commas(std::abs(is)), " B of ", what, ", ", right);
}

// Empty: the call allocates and frees what it should.
std::string wrong_in(const StageEvidence& e, const std::vector<StageCall>& calls,
                     const StageCall& call, MemoryUse use) {
  const auto more = [&](const StageCall& one, MemoryUse of) {
    return one.grown[size_t(of)] - right_growth(e, one, of);
  };
  const int64_t is = call.grown[size_t(use)], must = right_growth(e, call, use),
                peak = call.peak[size_t(use)];
  if (is != must)
    for (int i = 0; i < kMemoryUses; ++i)
      if (const MemoryUse other = MemoryUse(i); more(call, other) == must - is) {
        const MemoryUse wrong = is > must ? use : other, wanted = is > must ? other : use;
        return str("allocates ", plural(wanted), " as MemoryUse::", name(wrong),
                   ", must be MemoryUse::", name(wanted));
      }
  std::string later;
  for (const StageCall& one : calls)
    if (is == 0 && must < 0 && one.unit == call.unit && one.grown[size_t(use)] < 0 &&
        more(one, use) < 0)
      later = str(": ", one.function, " frees them, which is too late");
  if (call.is("allocate") && is != must && is == must * e.spec.ranks)
    return str("keeps ", plural(use), " in full: only 1/N of it is this rank's to keep");
  if (call.is("allocate") && is != must && is == must * (e.spec.ranks + 1))
    return str("keeps ", plural(use),
               " both in full and as a shard: the full tensor must not exist between steps");
  if (is != must) return growth_text(is, must, plural(use)) + later;
  if (peak <= std::max<int64_t>(0, must)) return "";
  return str("allocates ", with_commas(peak), " B of ", plural(use),
             " and frees them again, must allocate ",
             must <= 0 ? "none" : with_commas(must) + " B");
}

void check_each_call(const StageEvidence& e) {
  for (int r = 0; r < e.spec.ranks; ++r)
    for (const std::vector<StageCall> calls = e.calls(r); const StageCall& call : calls)
      for (int i = 0; i < kMemoryUses; ++i)
        if (const std::string what = wrong_in(e, calls, call, MemoryUse(i)); !what.empty())
          fail(str(call.function,
                   call.unit < 0 ? "" : str("(", e.model->units()[size_t(call.unit)].name, ")"),
                   " ", what),
               str("first at event ", call.event, " of rank ", r), r == 0 ? call.event : 0);
}

// ---- losses, gradients, norms and weights, in the order in which they arise --------------------

std::vector<FlatValues> of_ranks(const StageEvidence& e, const std::string& what) {
  std::vector<FlatValues> all;
  for (int r = 0; r < e.spec.ranks; ++r)
    all.emplace_back(e.seen.of(what, r).begin(), e.seen.of(what, r).end());
  return all;
}

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
  for (int r = 0; r < e.spec.ranks; ++r)
    if (shards[size_t(r)].size() * size_t(e.spec.ranks) != size_t(layout.size()))
      fail("the gradient shard of a rank has the wrong size",
           str("rank ", r, " has ", shards[size_t(r)].size(), " elements, must have ",
               layout.size() / e.spec.ranks));
  const Diagnosis d = diagnose_gradient({layout, alone, e.tolerance}, shards);
  if (d.found()) fail_of_gradient(e, d);
  std::vector<FlatValues> right;
  for (int r = 0; r < e.spec.ranks; ++r) right.push_back(layout.shards(must, r));
  if (e.exact && shards != right)
    fail(
        "the gradient is right but for rounding: values are added in another order than in this "
        "stage");
}

void check_bits(const StageEvidence& e) {
  PlainTraining plain(e.spec);
  const FlatLayout& layout = plain.layout();
  const auto alone = plain.gradients_alone();
  const FlatValues before = plain.weights();
  for (size_t step = 0; step < size_t(e.spec.steps); ++step) {
    const PlainStep must = plain.step(e.spec.engine.optimizer.lr);
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
    const std::vector<FlatValues> weights = of_ranks(e, str("weights ", step + 1));
    const FlatValues after = plain.weights();
    const Diagnosis d = diagnose_weights({layout, before, after, e.tolerance / 100}, weights);
    if (d.found()) fail(d.meaning, d.evidence);
    if (e.exact && std::ranges::count(weights, after) < e.spec.ranks)
      fail("the updated parameters are right but for rounding");
  }
}

// ---- traffic ------------------------------------------------------------------------------------

// For one purpose, of one rank in the whole run.
using Sent = std::map<Collective, Traffic>;

Sent sent_as(Purpose purpose, const std::vector<SentRow>& rows) {
  Sent all;
  for (const SentRow& row : rows) {
    if (row.purpose != purpose) continue;
    Traffic& sum = all[row.collective];
    sum = {sum.calls + row.traffic.calls, sum.elements + row.traffic.elements,
           sum.sent_bytes_times_n + row.traffic.sent_bytes_times_n, row.traffic.ranks};
  }
  return all;
}

std::string calls_text(const Sent& rows) {
  std::string text;
  for (const auto& [collective, row] : rows)
    text += str(text.empty() ? "" : ", ", row.calls, " x ", name(collective), " (",
                with_commas(row.sent_bytes()), " B sent)");
  return text.empty() ? "nothing" : text;
}

std::string meaning_of_traffic(Purpose purpose, const Sent& is, const Sent& must) {
  const std::string what = str("the ", name(purpose), "s");
  if (purpose != Purpose::gradient && purpose != Purpose::parameter)
    return str("the stage sends values as ", name(purpose),
               ": it must send gradients and parameters only");
  if (is.empty()) return what + " are not communicated";
  if (must.empty()) return what + " are communicated, which this stage does not need";
  const auto& [expected, right] = *must.begin();
  if (const Collective instead = is.begin()->first; !is.contains(expected))
    return str(name(instead), " instead of ", name(expected), " for ", what,
               instead == Collective::all_reduce
                   ? ": the bits may be right, but a rank sends twice as much"
                   : "");
  if (is.size() > 1)
    return str("more than ", name(expected), " is called for ", what,
               ": each further call costs as much again");
  const int64_t calls = is.begin()->second.calls;
  if (calls == right.calls) return what + "' calls have the wrong number of elements";
  return str(what, " are communicated too ", calls > right.calls ? "often: " : "rarely: ", calls,
             " calls, not ", right.calls);
}

void check_traffic(const StageEvidence& e) {
  for (const char* what : {"loss", "norm"})
    for (const double value : e.seen.list(what))
      if (!std::isfinite(value))
        fail(str("a ", what, " is not finite, so that the update was skipped and sent nothing: ",
                 "traffic is judged when the bits are right"));
  const Prediction prediction = predict(e.input);
  std::vector<SentRow> right;
  for (const auto& [key, t] : prediction.traffic.rows())
    if (key.purpose != Purpose::check)  // which follows a gradient that is not finite
      right.push_back({key.purpose,
                       key.collective,
                       {t.calls * e.spec.steps, t.elements * e.spec.steps,
                        t.sent_bytes_times_n * e.spec.steps, t.ranks}});
  for (int r = 0; r < e.spec.ranks; ++r)
    for (const Purpose purpose :
         {Purpose::gradient, Purpose::parameter, Purpose::norm, Purpose::loss, Purpose::check,
          Purpose::checkpoint, Purpose::scales}) {
      const Sent is = sent_as(purpose, e.sent(r)), must = sent_as(purpose, right);
      if (is != must)
        fail(meaning_of_traffic(purpose, is, must),
             str("rank ", r, " of ", e.spec.ranks, ", as ", name(purpose), ", in ", e.spec.steps,
                 " steps: ", calls_text(is), "; must be ", calls_text(must)));
    }
  for (const StageCall& call : e.calls(0))
    if (call.waits > 0 && !call.is("Work::wait"))
      fail(str(call.function, " waits for a collective itself: it must return the Work, so ",
               "that the schedule waits and units of one bucket communicate together"),
           str("first at event ", call.event, " of rank 0"), call.event);
}

using Check = void(const StageEvidence&);

void check(Check* first, Check* second = nullptr) {
  const StageEvidence e;
  first(e);
  if (second) second(e);
}

}  // namespace

TEST_CASE("memory at rest", "[05][06][07][start][5 points]") { check(check_each_call); }
TEST_CASE("one rank", "[05][06][07][start][5 points]") { check(check_bits); }
TEST_CASE("bits at 2 ranks", "[05][06][07][bits][10 points]") { check(check_bits); }
TEST_CASE("bits at 3 ranks", "[05][06][07][bits][15 points]") { check(check_bits); }
TEST_CASE("three micro-batches", "[05][06][07][accumulation][20 points]") { check(check_bits); }
TEST_CASE("traffic", "[05][06][07][traffic][15 points]") { check(check_traffic); }
TEST_CASE("peak", "[05][06][07][peak][20 points]") { check(check_each_call); }
TEST_CASE("a unit that runs twice", "[05][06][07][models][10 points]") {
  check(check_bits, check_each_call);
}

}  // namespace zl::exercises
