// The bytes of exercises 05 to 07 are expected by the closed formulas.

#include "tutorials/exercises/stages/evidence.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

using cli::with_commas;

const char* plural(MemoryUse use) {
  return use == MemoryUse::parameter         ? "parameters"
         : use == MemoryUse::gradient        ? "gradients"
         : use == MemoryUse::optimizer_state ? "optimizer state"
         : use == MemoryUse::master_weights  ? "master weights"
                                             : name(use);
}

// [B] by which a call of a right stage makes a use of memory grow.
int64_t right_growth(const StageEvidence& e, const StageCall& call, MemoryUse use) {
  if (call.unit < 0) return 0;
  const bool allocates = call.is("allocate"), parameter = use == MemoryUse::parameter,
             sharded = parameter ? shards_parameter(e.c.stage) : shards_gradient(e.c.stage);
  const int64_t n = e.full[size_t(call.unit)], shard = n / e.c.ranks,
                bytes = n * int64_t(size_of(e.c.dtype));
  if (use == MemoryUse::optimizer_state) return allocates ? e.optimizer.state * shard : 0;
  if (use == MemoryUse::master_weights) return allocates ? e.optimizer.master * shard : 0;
  if (!parameter && use != MemoryUse::gradient) return 0;
  if (allocates) return sharded ? bytes / e.c.ranks : bytes;
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
  if (call.is("allocate") && is != must && is == must * e.c.ranks)
    return str("keeps ", plural(use), " in full: only 1/N of it is this rank's to keep");
  if (call.is("allocate") && is != must && is == must * (e.c.ranks + 1))
    return str("keeps ", plural(use),
               " both in full and as a shard: the full tensor must not exist between steps");
  if (is != must) return growth_text(is, must, plural(use)) + later;
  if (peak <= std::max<int64_t>(0, must)) return "";
  return str("allocates ", with_commas(peak), " B of ", plural(use),
             " and frees them again, must allocate ",
             must <= 0 ? "none" : with_commas(must) + " B");
}

}  // namespace

StageEvidence::StageEvidence() {
  const auto data = course_data(c);
  const TrainingSpec spec = training_spec(c, *data);
  const auto model = spec.new_model();
  for (const Unit& unit : model->units()) names.push_back(unit.name);
  full = padded_unit_sizes(model->units(), c.ranks);
  optimizer = optimizer_bytes(spec.engine.optimizer, spec.engine.precision);
  const Prediction steady = predict({.options = spec.engine, .ranks = c.ranks, .units = full});
  for (const auto& [key, t] : steady.traffic.rows())
    if (key.purpose != Purpose::check)  // which follows a gradient that is not finite
      right_sent.push_back(
          {key.purpose,
           key.collective,
           {t.calls * c.steps, t.elements * c.steps, t.sent_bytes_times_n * c.steps, t.ranks}});
}

void check_each_call(const StageEvidence& e) {
  for (int r = 0; r < e.c.ranks; ++r)
    for (const std::vector<StageCall> calls = e.calls(r); const StageCall& call : calls)
      for (int i = 0; i < kMemoryUses; ++i)
        if (const std::string what = wrong_in(e, calls, call, MemoryUse(i)); !what.empty())
          fail(str(call.function, call.unit < 0 ? "" : str("(", e.names[size_t(call.unit)], ")"),
                   " ", what),
               str("first at event ", call.event, " of rank ", r), r == 0 ? call.event : 0);
}

}  // namespace zl::exercises
