// What single calls of a stage did, on every rank.
#include <algorithm>
#include <numeric>

#include "tutorials/exercises/stages/judge_sizes.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

using cli::with_commas;

// "rank 1, event 17: update(block0) ". --step opens there, if it is rank 0.
Verdict failed(std::string meaning, const StageSizes& s, int rank, const StageCall& call,
               const std::string& what) {
  return {false, std::move(meaning),
          str("rank ", rank, ", event ", call.event, ": ", s.text(call), " ", what),
          rank == 0 ? call.event : 0};
}

// A call's bookkeeping on the heap is small: handles, names, the state of a collective.
Verdict judge_heap(const StageEvidence& e, const StageSizes& s, int rank) {
  // [B] A GPU's backend has handles of a further kind.
  const int64_t at_once = 1024,
                together = e.exact ? 3072 * int64_t(s.full.size()) : s.element * s.total;
  int64_t heap = 0;
  for (const StageCall& call : e.calls(rank)) {
    heap += call.heap;
    if (call.largest_on_heap > at_once || heap > together)
      return failed("the stage keeps values outside the ledger, in memory of new or of a container",
                    s, rank, call,
                    str("allocates ", with_commas(call.largest_on_heap),
                        " B on the heap at once; so far ", with_commas(heap), " B"));
  }
  return passed();
}

// The system's view of a rank's tensors, where the run has made no others. Each block is rounded
// up.
Verdict judge_tensors(const StageEvidence& e, const StageSizes& s, int rank) {
  const auto found = e.record.numbers.find(str("tensors ", rank));
  if (!e.exact || found == e.record.numbers.end()) return passed();
  const auto& rest = s.prediction.device.rest;
  const int64_t must = std::accumulate(rest.begin(), rest.end(), int64_t(0));
  const int64_t is = int64_t(found->second.at(0)), rounding = 256 * int64_t(s.full.size());
  if (is <= must + rounding) return passed();
  return {false, "the rank's tensors take more memory than its ledger counts",
          str("rank ", rank, " has taken ", with_commas(is), " B for tensors, needs ",
              with_commas(must), " B")};
}

}  // namespace

Verdict judge_hidden(const StageEvidence& e, const StageSizes& s) {
  for (int r = 0; r < e.c.ranks; ++r) {
    for (const StageCall& call : e.calls(r))
      for (const MemoryUse use :
           {MemoryUse::activation, MemoryUse::communication, MemoryUse::workspace})
        if (call.peak(use) != 0 || call.grown(use) != 0)
          return failed(str("the stage holds memory as ", plain_name(use),
                            ": only parameters, gradients and optimizer state are its own"),
                        s, r, call, str("allocates ", with_commas(call.peak(use)), " B of it"));
    for (const auto judge : {judge_heap, judge_tensors})
      if (const Verdict v = judge(e, s, r); !v.passed) return v;
  }
  return passed();
}

Verdict judge_temporaries(const StageEvidence& e, const StageSizes& s) {
  for (int r = 0; r < e.c.ranks; ++r)
    for (const StageCall& call : e.calls(r))
      for (int i = 0; i < kMemoryUses; ++i) {
        const MemoryUse use = MemoryUse(i);
        const int64_t most = std::max<int64_t>(0, right_growth(e.c, s, call, use));
        if (call.peak(use) > most)
          return failed(str(name(call.function), " holds more ", plain_name(use),
                            " inside the call than it should"),
                        s, r, call,
                        str("allocates ", with_commas(call.peak(use)), " B of ", plain_name(use),
                            ", must allocate ", most == 0 ? "none" : with_commas(most) + " B"));
      }
  return passed();
}

Verdict judge_uses(const StageEvidence& e) {
  const StageSizes s = sizes_of(e.c);
  for (const StageCall& call : e.calls(0))
    for (int a = 0; a < kMemoryUses; ++a)
      for (int b = 0; b < kMemoryUses; ++b) {
        const MemoryUse is = MemoryUse(a), must = MemoryUse(b);
        const int64_t more = call.grown(is) - right_growth(e.c, s, call, is);
        if (more > 0 && more == right_growth(e.c, s, call, must) - call.grown(must))
          return failed(str(name(call.function), " allocates ", plain_name(must),
                            " as MemoryUse::", name(is), ", must be MemoryUse::", name(must)),
                        s, 0, call,
                        str("allocates ", with_commas(more), " B too many of ", plain_name(is),
                            " and too few of ", plain_name(must)));
      }
  return passed();
}

}  // namespace zl::exercises
