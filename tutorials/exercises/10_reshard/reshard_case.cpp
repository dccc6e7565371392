#include "tutorials/exercises/10_reshard/reshard_case.h"

#include "stages/partition.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace zl::exercises::reshard_checks {
namespace {

class Writer {
 public:
  Writer(const std::string& check, uint64_t seed) : stream_{seed, fnv1a(check)} {}

  int64_t between(int64_t low, int64_t high) {  // both included
    return low + int64_t(stream_.uniform(next_++) * double(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }

  // Parameters of odd sizes, trained, each with memory for itself.
  ReshardCase unit(int from, int to, int64_t parameters, int64_t largest) {
    ReshardCase c;
    for (int64_t p = 0; p < parameters; ++p)
      c.saved.parameters.push_back({.numel = 2 * between(0, largest / 2) + 1});
    c.now = c.saved;
    c.saved.ranks = from;
    c.now.ranks = to;
    return c;
  }
  ReshardCase unit(int from, int to) { return unit(from, to, between(5, 7), 180); }

  // The first parameter and one in the middle, which is not the last one.
  void freeze(ReshardCase& c) {
    for (ShardedUnit* unit : {&c.saved, &c.now})
      for (const size_t p : {size_t(0), c.saved.parameters.size() / 2})
        unit->parameters[p].frozen = true;
  }

  // One that was trained is frozen now, and one that was frozen is trained.
  void freeze_and_thaw(ReshardCase& c) {
    c.saved.parameters[1].frozen = c.now.parameters[2].frozen = true;
  }

  // The third parameter is tied to the second, and the last but one to the first.
  void tie(ReshardCase& c, bool in_saved, bool in_now) {
    const size_t last = c.saved.parameters.size() - 2;
    for (const auto& [follower, leader] : {std::pair<size_t, size_t>{2, 1}, {last, 0}}) {
      const UnitParameter &saved = c.saved.parameters[leader], &now = c.now.parameters[leader];
      c.saved.parameters[follower] = saved;
      c.now.parameters[follower] = now;
      if (in_saved) c.saved.parameters[follower].tied_to = int(leader);
      if (in_now) c.now.parameters[follower].tied_to = int(leader);
    }
  }

 private:
  PhiloxStream stream_;
  uint64_t next_ = 0;
};

std::vector<ReshardCase> cases_of_ranks(const std::string& check, Writer& w) {
  if (check == kSame) return {w.unit(2, 2), w.unit(3, 3)};
  if (check == kMore) return {w.unit(2, 3), w.unit(3, 5), w.unit(1, 4)};
  if (check == kFewer) return {w.unit(3, 2), w.unit(5, 3), w.unit(4, 1)};
  if (check == kReads) return {w.unit(3, 4), w.unit(5, 2)};
  return {w.unit(5, 7, 1, 40), w.unit(7, 5, 2, 30), w.unit(2, 8, 2, 20)};  // kEmpty
}

}  // namespace

std::vector<ReshardCase> reshard_cases(const std::string& check, uint64_t seed) {
  Writer w(check, seed);
  if (check == kSame || check == kMore || check == kFewer || check == kReads || check == kEmpty)
    return cases_of_ranks(check, w);
  std::vector<ReshardCase> cases = {w.unit(3, 3), w.unit(2, 3), w.unit(5, 2)};
  if (check == kAll)
    for (int i = 0; i < 9; ++i)
      cases.push_back(w.unit(int(w.between(1, 6)), int(w.between(1, 6)), w.between(4, 8), 90));
  for (ReshardCase& c : cases) {
    if (check == kFrozen)
      w.freeze(c);
    else if (check == kThawed)
      w.freeze_and_thaw(c);
    else if (check == kTied)
      w.tie(c, true, true);
    else if (check == kUntied)
      w.tie(c, &c != &cases[1], &c == &cases[1]);
    else if (check == kAll && w.coin())
      w.freeze_and_thaw(c), w.tie(c, w.coin(), w.coin());
    else if (check == kAll)
      w.freeze(c), w.tie(c, w.coin(), w.coin());
    else
      throw InputError("exercise 10 has no check '" + check + "'");
  }
  return cases;
}

FlatLayout flat_layout(const ShardedUnit& unit, State state) {
  std::vector<Parameter> parameters(unit.parameters.size());
  Unit flat;
  FlatLayout layout;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const UnitParameter& one = unit.parameters[p];
    parameters[p].shape = {one.numel};
    layout.begin.push_back(-1);
    if (one.tied_to >= 0 || (state == State::moments && one.frozen)) continue;
    layout.begin.back() = int64_t(flat.parameters.size());
    flat.parameters.push_back(&parameters[p]);
  }
  const Partition partition(flat, unit.ranks);
  for (int64_t& begin : layout.begin)
    if (begin >= 0) begin = partition.offset(size_t(begin));
  layout.full = partition.full();
  layout.shard = partition.shard();
  return layout;
}

float saved_value(State state, int parameter, int64_t element) {
  return float((state == State::moments ? 100'000 : 0) + 1'000 * (parameter + 1) + element);
}

std::vector<float> saved_piece(const ShardedUnit& saved, int rank, State state) {
  const FlatLayout layout = flat_layout(saved, state);
  std::vector<float> full;
  for (int64_t i = 0; i < layout.full; ++i) full.push_back(float(-1 - i));
  for (int p = 0; p < int(saved.parameters.size()); ++p)
    for (int64_t i = 0; layout.begin[size_t(p)] >= 0 && i < saved.parameters[size_t(p)].numel; ++i)
      full[size_t(layout.begin[size_t(p)] + i)] = saved_value(state, p, i);
  const auto first = full.begin() + rank * layout.shard;
  return {first, first + layout.shard};
}

std::string part_name(size_t which, int rank, State state) {
  return str(which, " ", rank, state == State::weights ? " weights" : " moments");
}

}  // namespace zl::exercises::reshard_checks
