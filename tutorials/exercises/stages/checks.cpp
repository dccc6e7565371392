// The checks of exercises 05 to 07, whose answer is one stage file. Bytes are expected by the
// closed formulas, bits by the plain loop.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>

#include "stages/predict/closed_form.h"
#include "tutorials/exercises/stages/evidence.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

using cli::with_commas;

// ---- bytes -------------------------------------------------------------------------------------

struct StageSizes {
  std::vector<std::string> names;
  std::vector<int64_t> full;  // [n] of each unit, padded
  int64_t element = 4;        // [B] of a parameter and of a gradient
  OptimizerBytes optimizer;
  Prediction prediction;
};

StageSizes sizes_of(const StageCase& c) {
  const auto data = course_data(c);
  const TrainingSpec spec = training_spec(c, *data);
  const auto model = spec.new_model();
  StageSizes s;
  for (const Unit& unit : model->units()) s.names.push_back(unit.name);
  s.full = padded_unit_sizes(model->units(), c.ranks);
  s.element = int64_t(size_of(c.dtype));
  s.optimizer = optimizer_bytes(spec.engine.optimizer, c.dtype);
  s.prediction = predict({.options = spec.engine, .ranks = c.ranks, .units = s.full});
  return s;
}

// [B] by which a right stage's call makes a use of memory grow.
int64_t right_growth(const StageCase& c, const StageSizes& s, const StageCall& call,
                     MemoryUse use) {
  using F = StageFunction;
  const int64_t full = s.full[size_t(call.unit)], shard = full / c.ranks;
  const bool sharded =
      use == MemoryUse::parameter ? c.stage == StageKind::zero3 : shards_gradient(c.stage);
  if (use == MemoryUse::parameter || use == MemoryUse::gradient) {
    const bool parameter = use == MemoryUse::parameter;
    if (call.function == F::allocate) return s.element * (sharded ? shard : full);
    if (sharded && call.function == (parameter ? F::unshard : F::before_backward))
      return s.element * full;
    if (sharded && call.function == (parameter ? F::reshard : F::after_reduce))
      return -s.element * full;
  }
  if (call.function != F::allocate) return 0;
  return use == MemoryUse::optimizer_state  ? s.optimizer.state * shard
         : use == MemoryUse::master_weights ? s.optimizer.master * shard
                                            : 0;
}

std::string plain_name(MemoryUse use) {
  return use == MemoryUse::parameter         ? "parameters"
         : use == MemoryUse::gradient        ? "gradients"
         : use == MemoryUse::optimizer_state ? "optimizer state"
         : use == MemoryUse::master_weights  ? "master weights"
                                             : name(use);
}

std::string text_of(const StageSizes& s, const StageCall& call) {
  const bool has_unit = call.function != StageFunction::constructor &&
                        call.function != StageFunction::reduces_every_micro_batch;
  return name(call.function) + (has_unit ? "(" + s.names[size_t(call.unit)] + ")" : "");
}

// "frees no gradients, must free 24,192 B".
std::string growth_text(int64_t is, int64_t must, const std::string& what) {
  const auto verb = [](int64_t bytes) { return bytes < 0 ? "free" : "allocate"; };
  const std::string right =
      must == 0 ? "must not" : str("must ", verb(must), " ", with_commas(std::abs(must)), " B");
  if (is == 0) return str(verb(must), "s no ", what, ", ", right);
  return str(verb(is), "s ", with_commas(std::abs(is)), " B of ", what, ", ", right);
}

// The first call that allocates or frees another number of bytes than it should.
struct WrongCall {
  std::string meaning;  // empty: there is none
  int64_t event = 0;
};

WrongCall first_wrong_call(const StageEvidence& e, const StageSizes& s, int rank) {
  const std::vector<StageCall> calls = e.calls(rank);
  const auto more = [&](const StageCall& call, int use) {
    return call.grown[size_t(use)] - right_growth(e.c, s, call, MemoryUse(use));
  };
  for (const StageCall& call : calls)
    for (int i = 0; i < kMemoryUses; ++i) {
      const MemoryUse use = MemoryUse(i);
      const std::string what = plain_name(use), function = text_of(s, call) + " ";
      const int64_t is = call.grown[size_t(i)], must = is - more(call, i);
      for (int other = 0; other < kMemoryUses && is != must; ++other)
        if (more(call, other) == must - is) {
          const MemoryUse wrong = is > must ? use : MemoryUse(other),
                          right = is > must ? MemoryUse(other) : use;
          return {str(function, "allocates ", plain_name(right), " as MemoryUse::", name(wrong),
                      ", must be MemoryUse::", name(right)),
                  call.event};
        }
      std::string later;
      for (const StageCall& one : calls)
        if (is == 0 && must < 0 && one.unit == call.unit && one.grown[size_t(i)] < 0 &&
            more(one, i) < 0)
          later = str(": ", name(one.function), " frees them, which is too late");
      if (is != must) return {function + growth_text(is, must, what) + later, call.event};
      if (call.peak[size_t(i)] > std::max<int64_t>(0, must))
        return {str(function, "allocates ", with_commas(call.peak[size_t(i)]), " B of ", what,
                    " and frees them again, must allocate ",
                    must <= 0 ? "none" : with_commas(must) + " B"),
                call.event};
    }
  return {};
}

void check_each_call(const StageEvidence& e, const StageSizes& s) {
  for (int r = 0; r < e.c.ranks; ++r)
    if (const WrongCall call = first_wrong_call(e, s, r); !call.meaning.empty())
      fail(call.meaning, str("first at event ", call.event, " of rank ", r),
           r == 0 ? call.event : 0);
}

// What a wrong number of bytes between steps means; `must` is right with N ranks.
std::string meaning_at_rest(const std::string& what, int64_t is, int64_t must, int N) {
  if (must == 0) return str("a rank keeps ", what, " between steps, must keep none");
  if (is == 0) return str("a rank keeps no ", what, " between steps");
  if (is == must * N) return what + " in full: only 1/N of it is this rank's to keep";
  if (is * N == must) return what + " as a shard only: this stage replicates them";
  if (is == must * (N + 1))
    return what + " both in full and as a shard: the full tensor must not exist between steps";
  return what + ": a rank keeps the wrong number of bytes between steps";
}

void check_rest(const StageEvidence& e) {
  const StageSizes s = sizes_of(e.c);
  for (int r = 0; r < e.c.ranks; ++r)
    for (int i = 0; i < kMemoryUses; ++i) {
      const std::string what = plain_name(MemoryUse(i));
      const auto is = int64_t(e.of_rank("rest", r)[size_t(i)]);
      const int64_t must = s.prediction.device.rest_of(MemoryUse(i));
      if (is == must) continue;
      const WrongCall call = first_wrong_call(e, s, r);
      const std::string where = str("\nfirst at event ", call.event, " of rank ", r, ": ");
      fail(meaning_at_rest(what, is, must, e.c.ranks),
           str("rank ", r, " of ", e.c.ranks, " keeps ", with_commas(is), " B of ", what,
               ", must keep ", with_commas(must), " B",
               call.meaning.empty() ? "" : where + call.meaning),
           r == 0 ? call.event : 0);
    }
}

void check_peak(const StageEvidence& e) {
  const StageSizes s = sizes_of(e.c);
  check_each_call(e, s);
  for (int r = 0; r < e.c.ranks; ++r)
    for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::gradient,
                                MemoryUse::optimizer_state, MemoryUse::master_weights}) {
      const auto is = int64_t(e.of_rank("peak", r)[size_t(use)]);
      const int64_t must = s.prediction.device.peak_of(use);
      if (is != must)
        fail(str("the peak of ", plain_name(use), " is ", with_commas(std::abs(is - must)),
                 " B too ", is > must ? "high" : "low"),
             str("rank ", r, " of ", e.c.ranks, " holds ", with_commas(is), " B at the peak, must ",
                 "hold ", with_commas(must), " B"));
    }
}

// ---- traffic -----------------------------------------------------------------------------------

using Sent = std::map<Collective, Traffic>;  // of one purpose, in the whole run

Sent sent_by(const StageEvidence& e, int rank, Purpose purpose) {
  const std::vector<double>& numbers = e.of_rank("traffic", rank);
  Sent all;
  for (size_t at = 0; at + 5 <= numbers.size(); at += 5) {
    const auto number = [&](size_t k) { return int64_t(numbers[at + k]); };
    const int64_t last = int64_t(Purpose::activation);  // a number beyond it is none
    if (Purpose(number(1) < 0 ? last : std::min(number(1), last)) != purpose) continue;
    Traffic& row = all[Collective(number(0))];
    row = {row.calls + number(2), row.elements + number(3), row.sent_bytes_times_n + number(4),
           e.c.ranks};
  }
  return all;
}

Sent predicted(const StageEvidence& e, const StageSizes& s, Purpose purpose) {
  Sent all;
  for (const auto& [key, t] : s.prediction.traffic.rows())
    if (key.purpose == purpose && purpose != Purpose::check)  // after a gradient that is not finite
      all[key.collective] = {t.calls * e.c.steps, t.elements * e.c.steps,
                             t.sent_bytes_times_n * e.c.steps, t.ranks};
  return all;
}

std::string calls_text(const Sent& rows, int ranks) {
  std::string text;
  for (const auto& [collective, row] : rows)
    text += str(text.empty() ? "" : ", ", row.calls, " x ", name(collective), " (",
                with_commas(row.sent_bytes_times_n / ranks), " B sent)");
  return text.empty() ? "nothing" : text;
}

std::string meaning_of_traffic(const StageCase& c, Purpose purpose, const Sent& is,
                               const Sent& must) {
  const std::string what = str("the ", name(purpose), "s");
  if (purpose != Purpose::gradient && purpose != Purpose::parameter)
    return str("the stage sends values as ", name(purpose),
               ": it must send gradients and parameters only");
  if (is.empty()) return what + " are not communicated";
  if (must.empty()) return what + " are communicated, which this stage does not need";
  const auto& [expected, right] = *must.begin();
  if (!is.contains(expected))
    return str(name(is.begin()->first), " instead of ", name(expected), " for ", what,
               is.begin()->first == Collective::all_reduce
                   ? ": the bits may be right, but a rank sends twice as much"
                   : "");
  if (is.size() > 1)
    return str("more than ", name(expected), " is called for ", what,
               ": each further call costs as much again");
  const Traffic& row = is.at(expected);
  if (row.calls == right.calls) return what + "' calls have the wrong number of elements";
  const std::string often =
      str(what, " are communicated too ", row.calls > right.calls ? "often: " : "rarely: ");
  if (c.micro_batches > 1 && row.calls == right.calls * c.micro_batches)
    return often + "after every micro-batch, not once per step";
  if (c.micro_batches > 1 && row.calls * c.micro_batches == right.calls)
    return often + "once per step, not after every micro-batch";
  const bool whole = row.calls % c.steps == 0;
  return str(often, whole ? row.calls / c.steps : row.calls, whole ? " calls per step" : " calls",
             ", not ", whole ? right.calls / c.steps : right.calls);
}

void check_traffic(const StageEvidence& e) {
  const StageSizes s = sizes_of(e.c);
  for (const char* what : {"loss", "norm"})
    for (const double value : e.seen.list(what))
      if (!std::isfinite(value))
        fail(str("a ", what, " is not finite, so that the update was skipped and sent nothing: ",
                 "traffic is judged when the bits are right"));
  for (int r = 0; r < e.c.ranks; ++r)
    for (const Purpose purpose :
         {Purpose::gradient, Purpose::parameter, Purpose::norm, Purpose::loss, Purpose::check,
          Purpose::checkpoint, Purpose::scales, Purpose::activation}) {
      const Sent is = sent_by(e, r, purpose), must = predicted(e, s, purpose);
      if (is != must)
        fail(meaning_of_traffic(e.c, purpose, is, must),
             str("rank ", r, " of ", e.c.ranks, ", as ", name(purpose), ", in ", e.c.steps,
                 " steps: ", calls_text(is, e.c.ranks), "; must be ", calls_text(must, e.c.ranks)));
    }
  for (const StageCall& call : e.calls(0))
    if (call.waits > 0 && call.function != StageFunction::wait)
      fail(str(name(call.function), " waits for a collective itself: it must return the Work, so ",
               "that the schedule waits and units of one bucket communicate together"),
           str("first at event ", call.event, " of rank 0: ", text_of(s, call)), call.event);
}

}  // namespace

void check_uses(const StageEvidence& e) {
  const WrongCall call = first_wrong_call(e, sizes_of(e.c), 0);
  if (call.meaning.find(" as MemoryUse::") != std::string::npos)
    fail(call.meaning, str("first at event ", call.event, " of rank 0"), call.event);
}

TEST_CASE("memory at rest", "[05][06][07][start][5 points]") { check_rest({}); }
TEST_CASE("one rank", "[05][06][07][start][5 points]") {
  const StageEvidence e;
  check_rest(e);
  check_bits(e);
}
TEST_CASE("memory after three steps", "[05][06][07][start][5 points]") { check_rest({}); }
TEST_CASE("bits at 2 ranks", "[05][06][07][bits][10 points]") { check_bits({}); }
TEST_CASE("bits at 3 ranks", "[05][06][07][bits][15 points]") { check_bits({}); }
TEST_CASE("traffic", "[05][06][07][traffic][10 points]") { check_traffic({}); }
TEST_CASE("peak", "[05][06][07][peak][15 points]") { check_peak({}); }
TEST_CASE("gradient of three micro-batches", "[05][06][07][accumulation][5 points]") {
  check_bits({});
}
TEST_CASE("bits of three micro-batches", "[05][06][07][accumulation][5 points]") { check_bits({}); }
TEST_CASE("bytes of three micro-batches", "[05][06][07][accumulation][5 points]") {
  const StageEvidence e;
  check_traffic(e);
  check_peak(e);
}
TEST_CASE("a unit that runs twice", "[05][06][07][models][5 points]") {
  const StageEvidence e;
  check_bits(e);
  check_each_call(e, sizes_of(e.c));
}
TEST_CASE("unused and frozen parameters", "[05][06][07][models][5 points]") { check_bits({}); }
TEST_CASE("clipping", "[05][06][07][numerics][3 points]") { check_bits({}); }
TEST_CASE("bf16", "[05][06][07][numerics][4 points]") { check_bits({}); }
TEST_CASE("large buckets", "[05][06][07][numerics][3 points]") { check_bits({}); }

}  // namespace zl::exercises
