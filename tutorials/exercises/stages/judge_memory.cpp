#include <algorithm>

#include "tutorials/exercises/stages/judge_sizes.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

using cli::with_commas;

std::string growth(int64_t bytes, MemoryUse use) {
  return str(bytes < 0 ? "frees " : "allocates ", with_commas(std::abs(bytes)), " B of ",
             plain_name(use));
}

// "frees no gradients, but must free 24,192 B".
std::string growth_and_right(int64_t is, int64_t must, MemoryUse use) {
  const std::string right =
      must == 0 ? "must not"
                : str("must ", must < 0 ? "free " : "allocate ", with_commas(std::abs(must)), " B");
  if (is != 0) return growth(is, use) + ", but " + right;
  return str(must < 0 ? "frees no " : "allocates no ", plain_name(use), ", but ", right);
}

// The first call that allocates or frees another number of bytes than it should.
struct WrongCall {
  std::string text;  // a line; empty: there is none
  int64_t event = 0;
};

WrongCall first_wrong_call(const StageEvidence& e, const StageSizes& s, int rank = 0) {
  const std::vector<StageCall> calls = e.calls(rank);
  for (size_t i = 0; i < calls.size(); ++i)
    for (int u = 0; u < kMemoryUses; ++u) {
      const MemoryUse use = MemoryUse(u);
      const int64_t is = calls[i].grown(use), must = right_growth(e.c, s, calls[i], use);
      if (is != must)
        return {str("\nfirst at event ", calls[i].event, " of rank ", rank, ": ", s.text(calls[i]),
                    " ", growth_and_right(is, must, use)),
                calls[i].event};
    }
  return {};
}

// ---- at rest ---------------------------------------------------------------------------------

bool allocates_too_much(const StageEvidence& e, const StageSizes& s, MemoryUse use) {
  return std::ranges::any_of(e.calls(0), [&](const StageCall& call) {
    return call.function == StageFunction::allocate &&
           call.grown(use) > right_growth(e.c, s, call, use);
  });
}

std::string meaning_at_rest(const StageEvidence& e, const StageSizes& s, MemoryUse use, int64_t is,
                            int64_t must) {
  const std::string what = plain_name(use);
  const int64_t per_element = use == MemoryUse::optimizer_state  ? s.optimizer.state
                              : use == MemoryUse::master_weights ? s.optimizer.master
                                                                 : s.element;
  const int64_t full = per_element * s.total;
  if (must == 0)
    return str("a rank keeps ", with_commas(is), " B of ", what, " between steps, must keep none");
  if (is == 0) return str("a rank keeps no ", what, " between steps");
  if (is == full) return what + " in full: only 1/N of it is this rank's to keep";
  if (is == full / e.c.ranks && must == full)
    return what + " as a shard only: this stage replicates them";
  if (is == full + must)
    return what + " both in full and as a shard: " +
           (allocates_too_much(e, s, use)
                ? str("allocate makes the full tensor, which must exist only from ",
                      use == MemoryUse::gradient ? "before_backward to after_reduce"
                                                 : "unshard to reshard")
                : "the full tensor is never freed");
  for (size_t u = 0; u < s.full.size(); ++u)
    if (is - must == per_element * s.full[u])
      return str(what, ": the full tensor of ", s.names[u],
                 " is still there between steps; a handle or a view of it is kept somewhere");
  return what + ": a rank keeps the wrong number of bytes between steps";
}

// ---- at the peak -----------------------------------------------------------------------------

// Which functions freed memory of `use`, for the sentence "freed in update, not in after_reduce".
std::string freeing_functions(const std::vector<StageCall>& calls, MemoryUse use) {
  std::vector<std::string> names;
  for (const StageCall& call : calls)
    if (call.grown(use) < 0 && std::ranges::find(names, name(call.function)) == names.end())
      names.push_back(name(call.function));
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

// "reshard(block0)": the first call that should free memory of `use` and frees none, or "".
std::string leaving_call(const StageEvidence& e, const StageSizes& s, MemoryUse use) {
  for (const StageCall& call : e.calls(0))
    if (right_growth(e.c, s, call, use) < 0 && call.grown(use) == 0) return s.text(call);
  return "";
}

std::string meaning_at_peak(const StageEvidence& e, const StageSizes& s, MemoryUse use, int64_t is,
                            int64_t must) {
  const std::string what = plain_name(use);
  const int64_t more = is - must;
  const bool gradient = use == MemoryUse::gradient;
  // Whether this stage allocates and frees it during a step, and where it should free it.
  const bool temporary = (gradient && shards_gradient(e.c.stage)) ||
                         (use == MemoryUse::parameter && e.c.stage == StageKind::zero3);
  const std::string due = gradient ? "after_reduce" : "reshard";
  const std::string freed = freeing_functions(e.calls(0), use);
  if (more < 0)
    return str("the peak of ", what, " is ", with_commas(-more),
               " B too low: a tensor that this stage needs is missing");
  if (temporary && freed.empty())
    return str("the full ", what, " are never freed: ", due, " must free them");
  if (temporary && freed != due)
    return str("the full ", what, " are freed too late: in ", freed, ", not in ", due);
  if (const std::string left = leaving_call(e, s, use); !left.empty())
    return left + " leaves the full " + what + ": it must free them each time";
  for (size_t u = 0; u < s.full.size(); ++u)
    if (more == s.element * s.full[u])
      return str("the peak of ", what, " is one full unit too high: it is freed after the next ",
                 "unit began, or held twice");
  return str("the peak of ", what, " is ", with_commas(more), " B too high");
}

}  // namespace

Verdict judge_rest(const StageEvidence& evidence) {
  const StageSizes s = sizes_of(evidence.c);
  for (int r = 0; r < evidence.c.ranks; ++r)
    for (int i = 0; i < kMemoryUses; ++i) {
      const MemoryUse use = MemoryUse(i);
      const int64_t is = int64_t(evidence.of_rank("rest", r)[size_t(i)]);
      const int64_t must = s.prediction.device.rest_of(use);
      if (is == must) continue;
      const WrongCall call = first_wrong_call(evidence, s);
      return {false, meaning_at_rest(evidence, s, use, is, must),
              str("rank ", r, " of ", evidence.c.ranks, " keeps ", with_commas(is), " B of ",
                  plain_name(use), ", must keep ", with_commas(must), " B (", with_commas(s.total),
                  " elements with padding)", call.text),
              call.event};
    }
  return judge_hidden(evidence, s);
}

Verdict judge_each_call(const StageEvidence& evidence) {
  const StageSizes s = sizes_of(evidence.c);
  for (int r = 0; r < evidence.c.ranks; ++r) {
    const WrongCall call = first_wrong_call(evidence, s, r);
    if (call.text.empty()) continue;
    return {false, "a call allocates or frees another number of bytes than it should",
            call.text.substr(1), r == 0 ? call.event : 0};
  }
  return passed();
}

Verdict judge_peak(const StageEvidence& evidence) {
  const StageSizes s = sizes_of(evidence.c);
  if (const Verdict hidden = judge_hidden(evidence, s); !hidden.passed) return hidden;
  for (int r = 0; r < evidence.c.ranks; ++r)
    for (int i = 0; i < kMemoryUses; ++i) {
      const MemoryUse use = MemoryUse(i);
      if (!has_closed_formula(use, Pool::device)) continue;
      const int64_t is = int64_t(evidence.of_rank("peak", r)[size_t(i)]);
      const int64_t must = s.prediction.device.peak_of(use);
      if (is == must) continue;
      const WrongCall call = first_wrong_call(evidence, s);
      if (call.text.empty())
        if (const Verdict inside = judge_temporaries(evidence, s); !inside.passed) return inside;
      return {false, meaning_at_peak(evidence, s, use, is, must),
              str("rank ", r, " of ", evidence.c.ranks, " holds ", with_commas(is), " B of ",
                  plain_name(use), " at the peak, must hold ", with_commas(must), " B", call.text),
              call.event};
    }
  return judge_temporaries(evidence, s);
}

}  // namespace zl::exercises
