#include "tests/stages/explored/races.h"

#include <algorithm>

#include "tensor/error.h"

namespace zl::test {
namespace {

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void set(std::vector<uint32_t>& clock, size_t component, uint32_t time) {
  if (clock.size() <= component) clock.resize(component + 1);
  clock[component] = time;
}

// "rank 1: accumulate in unit h.0 (backward)", "call 7, reduce_scatter 'h.0 gradient', on rank 1".
std::string in_words(const Accessor& by, bool writes) {
  const char* does = writes ? " writes" : " reads";
  if (by.call >= 0)
    return str("call ", by.call + 1, ", ", by.what, " '", by.detail, "', on rank ", by.rank, does);
  return str("rank ", by.rank, ": ", by.what, *by.unit ? " in unit " : "", by.unit,
             *by.phase ? str(" (", by.phase, ")") : "", does);
}

}  // namespace

Races::Races(int ranks, bool order) : ranks_(ranks), order_(order), ranks_know_(size_t(ranks)) {
  for (int r = 0; r < ranks; ++r) set(ranks_know_[size_t(r)], size_t(r), 1);
}

void Races::allocated(const void* block, int64_t bytes) {
  ranges_[number(block)] = {.end = number(block) + uintptr_t(bytes), .write = {}, .reads = {}};
  blocks_[number(block)] = bytes;
}

void Races::freed(const Accessor& by, const void* block, int64_t bytes) {
  access(by, block, bytes, true);
  split(number(block) + uintptr_t(bytes));
  ranges_.erase(split(number(block)), ranges_.lower_bound(number(block) + uintptr_t(bytes)));
  blocks_.erase(number(block));
}

void Races::issued(int call, int rank) {
  if (calls_know_.size() <= size_t(call)) calls_know_.resize(size_t(call) + 1);
  Clock& mine = ranks_know_[size_t(rank)];
  join(calls_know_[size_t(call)], mine);
  ++mine[size_t(rank)];  // later accesses of the rank are not before the call
}

void Races::waited(int call, int rank) {
  Clock& mine = ranks_know_[size_t(rank)];
  join(mine, calls_know_[size_t(call)]);
  set(mine, part(call, rank), 1);
}

const Races::Clock& Races::clock_of(const Accessor& by) const {
  return by.call >= 0 ? calls_know_[size_t(by.call)] : ranks_know_[size_t(by.rank)];
}

Races::Access Races::access_of(const Accessor& by) const {
  if (by.call >= 0) return {part(by.call, by.rank), 1, by};
  return {size_t(by.rank), ranks_know_[size_t(by.rank)][size_t(by.rank)], by};
}

bool Races::ordered(const Access& earlier, const Accessor& later) const {
  if (!order_ || earlier.time == 0) return true;
  if (later.call >= 0 && earlier.by.call == later.call) return true;  // one instant
  const Clock& clock = clock_of(later);
  return earlier.component < clock.size() && clock[earlier.component] >= earlier.time;
}

// The range that begins at `at`; what holds `at` is split.
Races::Ranges::iterator Races::split(uintptr_t at) {
  const auto next = ranges_.lower_bound(at);
  if (next == ranges_.begin() || (next != ranges_.end() && next->first == at)) return next;
  const auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Range rest = before->second;
  before->second.end = at;
  return ranges_.emplace_hint(next, at, std::move(rest));
}

bool Races::access(const Accessor& by, const void* address, int64_t bytes, bool writes) {
  if (bytes == 0) return true;
  const uintptr_t begin = number(address), end = begin + uintptr_t(bytes);
  split(end);
  const auto first = split(begin);
  uintptr_t known = begin;
  auto range = first;
  bool fine = true;
  for (; range != ranges_.end() && range->first == known && known < end; ++range) {
    known = range->second.end;
    if (!ordered(range->second.write, by))
      fine = report(range->second.write, true, {by, begin, end, writes});
    if (writes)
      for (const Access& read : range->second.reads)
        if (!ordered(read, by)) fine = report(read, false, {by, begin, end, writes});
    if (writes) continue;
    auto& reads = range->second.reads;
    const Access mine = access_of(by);
    const auto same = std::ranges::find(reads, mine.component, &Access::component);
    (same == reads.end() ? reads.emplace_back() : *same) = mine;
  }
  if (known < end) {
    if (first_.empty())
      first_ = str(in_words(by, writes), " memory that is not allocated: ", place(begin, end));
    return false;
  }
  if (!writes) return fine;
  ranges_.erase(std::next(first), range);  // one write, one range
  first->second = {.end = end, .write = access_of(by), .reads = {}};
  return fine;
}

bool Races::report(const Access& earlier, bool earlier_wrote, const Attempt& attempt) {
  if (first_.empty())
    first_ =
        str(in_words(attempt.by, attempt.writes), " ", place(attempt.begin, attempt.end),
            "; there is no order between this and: ", in_words(earlier.by, earlier_wrote), " them");
  return false;
}

std::string Races::place(uintptr_t begin, uintptr_t end) const {
  auto block = blocks_.upper_bound(begin);
  if (block == blocks_.begin()) return str(end - begin, " B");
  --block;
  return str("bytes ", begin - block->first, " to ", end - block->first, " of a block of ",
             block->second, " B");
}

}  // namespace zl::test
