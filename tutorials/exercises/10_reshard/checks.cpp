#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "tensor/error.h"
#include "tutorials/exercises/10_reshard/loads.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {
namespace reshard_checks {

bool same_shard(const Load& a, const Load& b) {
  return std::ranges::equal(a.shard, b.shard, [](float x, float y) {
    return x == y || (std::isnan(x) && std::isnan(y));
  });
}

// One read per parameter and piece.
Load right_load(const ReshardCase& c, int rank, State state) {
  const FlatLayout from = flat_layout(c.saved, state), to = flat_layout(c.now, state);
  Load load;
  for (int64_t i = 0; i < to.shard; ++i) {
    float value = 0;
    for (size_t p = 0; p < to.begin.size(); ++p) {
      const int64_t element = rank * to.shard + i - to.begin[p];
      if (to.begin[p] < 0 || element < 0 || element >= c.now.parameters[p].numel) continue;
      const int tied = c.saved.parameters[p].tied_to;
      const int source = tied >= 0 ? tied : int(p);
      if (from.begin[size_t(source)] < 0) continue;
      value = saved_value(state, source, element);
      const int64_t at = from.begin[size_t(source)] + element;
      const Read one{int(at / from.shard), state, at % from.shard, 1};
      Read* last = load.reads.empty() ? nullptr : &load.reads.back();
      const bool goes_on = last && element > 0 && i > 0 && last->rank == one.rank &&
                           last->first + last->count == one.first;
      if (goes_on)
        ++last->count;
      else
        load.reads.push_back(one);
    }
    load.shard.push_back(value);
  }
  return load;
}

}  // namespace reshard_checks

namespace {

using namespace reshard_checks;

const std::vector<Check> kChecks = {
    {kSame, "same", 10},   {kMore, "ranks", 15},    {kFewer, "ranks", 10},   {kEmpty, "ranks", 10},
    {kReads, "reads", 10}, {kFrozen, "frozen", 15}, {kThawed, "frozen", 10}, {kTied, "tied", 10},
    {kUntied, "tied", 5},  {kAll, "all", 5},
};

Verdict failed(std::string meaning, std::string details) {
  return {.passed = false, .meaning = std::move(meaning), .details = std::move(details)};
}

// A shard that was loaded: which, what it should be, and what it is.
struct Part {
  size_t which = 0;
  int rank = 0;
  State state = State::weights;
  Load got, right;
};
using Parts = std::vector<Part>;
using Cases = std::vector<ReshardCase>;

Parts parts_of(const Cases& cases, const Record& record) {
  const auto numbers = [&](const std::string& name) {
    const auto found = record.numbers.find(name);
    return found == record.numbers.end() ? std::vector<double>() : found->second;
  };
  Parts parts;
  for (size_t k = 0; k < cases.size(); ++k)
    for (int rank = 0; rank < cases[k].now.ranks; ++rank)
      for (const State state : kStates) {
        Part& part = parts.emplace_back();
        part.which = k, part.rank = rank, part.state = state;
        part.right = right_load(cases[k], rank, state);
        const std::string name = part_name(k, rank, state);
        for (const double x : numbers(name)) part.got.shard.push_back(float(x));
        const std::vector<double> reads = numbers(name + " reads");
        for (size_t i = 0; i + 3 < reads.size(); i += 4)
          part.got.reads.push_back({int(reads[i]), State(int(reads[i + 1])), int64_t(reads[i + 2]),
                                    int64_t(reads[i + 3])});
      }
  return parts;
}

// ---- values ----------------------------------------------------------------------------------

std::string text(const ShardedUnit& unit) {
  std::string all;
  for (const UnitParameter& p : unit.parameters)
    all += str(all.empty() ? "" : ", ", p.numel, p.frozen ? " frozen" : "",
               p.tied_to >= 0 ? str(" tied to ", p.tied_to) : "");
  return str(unit.ranks, unit.ranks == 1 ? " rank" : " ranks", ", parameters 0 to ",
             unit.parameters.size() - 1, " of ", all);
}

const char* name(State state) { return state == State::weights ? "weights" : "moments"; }

// "element 12 of parameter 3's weights"
std::string origin(float value) {
  if (std::isnan(value)) return "nothing: it was read outside of a piece";
  if (value == 0) return "0";
  if (value < 0) return "padding of a piece";
  const int64_t number = int64_t(value);
  const State state = number >= 100'000 ? State::moments : State::weights;
  return str("element ", number % 1'000, " of parameter ", number % 100'000 / 1'000 - 1, "'s ",
             name(state));
}

std::string place(const Cases& cases, const Part& part) {
  const ReshardCase& c = cases[part.which];
  return str("saved by ", text(c.saved), "\nloaded by ", text(c.now), "\nrank ", part.rank, ", ",
             name(part.state), ": ");
}

std::string first_difference(float got, float right) {
  if (std::isnan(got)) return "a piece is read where it has no elements";
  if (got < 0)
    return right == 0
               ? "padding of the pieces is copied: it may hold anything, and here it must be 0"
               : "an element is padding of a piece";
  if (got == 0) return "an element is 0 that was saved";
  if (right == 0) return "an element is not 0 that nothing was saved for";
  return "an element has the value of another one";
}

Verdict judge_values(const Cases& cases, const Parts& parts) {
  const auto are = [&](const Rules& rules) {
    return std::ranges::all_of(parts, [&](const Part& part) {
      return same_shard(part.got, simulated(cases[part.which], part.rank, part.state, rules));
    });
  };
  const auto wrong = std::ranges::find_if(
      parts, [](const Part& part) { return !same_shard(part.got, part.right); });
  if (wrong == parts.end()) return {.passed = true};
  const std::vector<float>&got = wrong->got.shard, &right = wrong->right.shard;
  std::string meaning, details = place(cases, *wrong);
  if (got.size() != right.size()) {
    meaning = "the shard has another size than it must have";
    details += str(got.size(), " elements, expected ", right.size());
  } else {
    size_t i = 0;
    while (got[i] == right[i]) ++i;
    meaning = first_difference(got[i], right[i]);
    details += str("element ", i, " of ", right.size(), " is ", origin(got[i]), ", expected ",
                   origin(right[i]));
  }
  for (const Mistake& mistake : kWrongShards)
    if (are(mistake.rules)) return failed(mistake.meaning, details);
  return failed(meaning, details);
}

// ---- reads -----------------------------------------------------------------------------------

using Elements = std::multiset<std::tuple<int, State, int64_t>>;

Elements elements_of(const std::vector<Read>& reads) {
  Elements elements;
  for (const Read& read : reads)
    for (int64_t i = 0; i < read.count; ++i)
      elements.insert({read.rank, read.state, read.first + i});
  return elements;
}

std::string wrong_read(const Part& part) {
  const Elements got = elements_of(part.got.reads), right = elements_of(part.right.reads);
  for (const auto& element : got) {
    if (!right.contains(element)) return "more is read than the shard needs";
    if (got.count(element) > right.count(element)) return "an element is read twice";
  }
  for (const auto& element : right)
    if (!got.contains(element)) return "an element of the shard was not read";
  if (part.got.reads.size() > part.right.reads.size())
    return "what one call can read is read by several";
  return "";
}

Verdict judge_reads(const Cases& cases, const Parts& parts) {
  const auto wrong =
      std::ranges::find_if(parts, [](const Part& part) { return !wrong_read(part).empty(); });
  if (wrong == parts.end()) return {.passed = true};
  const auto are = [&](const Rules& rules) {
    return std::ranges::all_of(parts, [&](const Part& part) {
      const Load load = simulated(cases[part.which], part.rank, part.state, rules);
      return std::ranges::is_permutation(part.got.reads, load.reads);
    });
  };
  const auto sum = [](const Load& load) {
    int64_t n = 0;
    for (const Read& read : load.reads) n += read.count;
    return str(n, " elements in ", load.reads.size(), load.reads.size() == 1 ? " read" : " reads");
  };
  const std::string details =
      str(place(cases, *wrong), sum(wrong->got), ", expected ", sum(wrong->right));
  for (const Mistake& mistake : kWrongReads)
    if (are(mistake.rules)) return failed(mistake.meaning, details);
  return failed(wrong_read(*wrong), details);
}

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const Cases cases = reshard_cases(check.name, options.seed);
  const Parts parts = parts_of(cases, record);
  const Verdict values = judge_values(cases, parts);
  if (!values.passed || (check.name != kReads && check.name != kAll)) return values;
  return judge_reads(cases, parts);
}

}  // namespace

Exercise exercise_10() {
  return {.number = 10,
          .name = "10_reshard",
          .title = "A checkpoint that reshards",
          .checks = kChecks,
          .headers = {"tutorials/exercises/10_reshard/reshard.h"},
          .functions = {},
          .defines = {"zl::exercises::load_shard("},
          .judge = judge};
}

}  // namespace zl::exercises
