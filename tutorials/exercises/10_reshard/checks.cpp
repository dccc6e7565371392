// The checks of exercise 10. Positions are expected by the library's Partition.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tensor/error.h"
#include "tutorials/exercises/10_reshard/reshard_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace reshard_checks;
// One element of a shard: what it must be, and what it is.
struct Element {
  int parameter = -1;      // -1: padding
  int piece = -1;          // that has it; -1: it was not saved
  bool goes_on = false;    // its parameter begins in the shard, but in an earlier piece
  bool was_tied = false;   // its parameter
  bool own_piece = false;  // another piece has it, but the rank has read that with its number only
  State state{};
  double must = 0, is = 0;
};

// The shard that a rank loads of a state.
struct Part {
  const ReshardCase& c;
  int rank;
  State state;
  Values got;
  std::vector<PieceRead> reads;
  std::vector<Element> elements = {};

  void expect() {
    const FlatLayout from = flat_layout(c.saved, state), to = flat_layout(c.now, state);
    const bool own_piece =
        std::ranges::all_of(reads, [&](const PieceRead& read) { return read.piece == rank; });
    elements.assign(size_t(to.shard), {.state = state});
    for (size_t p = 0; p < to.begin.size(); ++p)
      for (int64_t e = 0; to.begin[p] >= 0 && e < c.now.parameters[p].numel; ++e) {
        const int64_t at = to.begin[p] + e - rank * to.shard;
        if (at < 0 || at >= to.shard) continue;
        const int tied_to = c.saved.parameters[p].tied_to, source = tied_to >= 0 ? tied_to : int(p);
        Element& one = elements[size_t(at)];
        one.parameter = int(p), one.was_tied = tied_to >= 0;
        if (from.begin[size_t(source)] < 0) continue;
        one.must = saved_value(state, source, e);
        one.piece = int((from.begin[size_t(source)] + e) / from.shard);
        one.own_piece = own_piece && one.piece != rank;
        const Element before = at > 0 ? elements[size_t(at - 1)] : Element();
        one.goes_on =
            before.parameter == one.parameter && (before.goes_on || before.piece != one.piece);
      }
  }
};

// "3 ranks, parameters of 17, 5 frozen, 17 tied to 0".
std::string text(const ShardedUnit& unit) {
  std::string all;
  for (const UnitParameter& p : unit.parameters)
    all += str(all.empty() ? "" : ", ", p.numel, p.frozen ? " frozen" : "",
               p.tied_to >= 0 ? str(" tied to ", p.tied_to) : "");
  return str(unit.ranks, unit.ranks == 1 ? " rank" : " ranks", ", parameters of ", all);
}

const char* name(State state) { return state == State::weights ? "weights" : "moments"; }

std::string place(const Part& part) {
  return str("saved by ", text(part.c.saved), "\nloaded by ", text(part.c.now), "\nrank ",
             part.rank, ", ", name(part.state), ": ");
}

bool of_weights(double value) { return value > 0 && value < 100'000; }

// "element 12 of parameter 3's weights"
std::string origin(double value) {
  if (std::isnan(value)) return "nothing: it was read outside of a piece";
  if (value == 0) return "0";
  if (value < 0) return "padding of a piece";
  const auto number = int64_t(value);
  return str("element ", number % 1'000, " of parameter ", number % 100'000 / 1'000 - 1, "'s ",
             name(of_weights(value) ? State::weights : State::moments));
}

void check_size(const Part& part) {
  const auto shard = [&](const ShardedUnit& unit, State state) {
    return size_t(flat_layout(unit, state).shard);
  };
  const bool weights = part.state == State::weights;
  const size_t is = part.got.size(), must = part.elements.size(),
               other = shard(part.c.now, weights ? State::moments : State::weights);
  if (is == must) return;
  fail(
      is == other && weights
          ? "the weights of frozen parameters are lost: they have no moments, but they have weights"
      : is == other ? "frozen parameters have no moments: what follows them is earlier there"
      : is > must &&
              std::ranges::any_of(part.c.now.parameters, [](auto& p) { return p.tied_to >= 0; })
          ? "tied parameters have no memory: what follows them is earlier in the flat memory"
          : "the shard has another size than it must have",
      place(part) + str(is, " elements, must have ", must));
}

// The first row counts that all wrong elements fit.
using E = const Element&;
constexpr std::pair<bool (*)(E), const char*> kMeanings[] = {
    {[](E e) { return e.own_piece; },
     "each rank reads the piece with its number: with another number of ranks its shard is "
     "elsewhere"},
    {[](E e) { return e.is < 0 && e.must == 0; },
     "padding of the pieces is copied: it may hold anything, and here it must be 0"},
    {[](E e) { return e.is == 0 && e.was_tied; },
     "a parameter that was tied is not in the pieces, and is loaded as 0: the one that it was tied "
     "to has its values"},
    {[](E e) { return e.is == 0 && e.goes_on; },
     "a parameter that goes on in the next rank's piece is loaded from the first piece only"},
    {[](E e) { return e.state == State::moments && of_weights(e.is) && e.must == 0; },
     "a parameter that was frozen has no moments in the pieces: they begin with 0, not with its "
     "weights"},
    {[](E) { return true; },
     "an element has a wrong value: which piece has the right one, and where in that piece?"}};

void check_values(const std::vector<Part>& parts) {
  std::vector<Element> wrong;
  std::string details;
  for (const Part& part : parts)
    for (size_t i = 0; i < part.elements.size(); ++i) {
      const Element& e = part.elements[i];
      if (e.is == e.must) continue;
      if (wrong.empty())
        details = str(place(part), "element ", i, " of ", part.elements.size(), " is ",
                      origin(e.is), ", must be ", origin(e.must));
      wrong.push_back(e);
    }
  for (const auto& [fits, meaning] : kMeanings)
    if (!wrong.empty() && std::ranges::all_of(wrong, fits)) fail(meaning, details);
}

void check_reads(const Part& part) {
  const double all = double(part.c.saved.ranks * flat_layout(part.c.saved, part.state).shard),
               calls = double(part.reads.size());
  double is = 0, must = 0, right_calls = 0;
  for (const PieceRead& read : part.reads) is += double(read.elements);
  Element before;
  for (const Element& e : part.elements) {
    must += e.piece >= 0;
    right_calls += e.piece >= 0 && (e.parameter != before.parameter || e.piece != before.piece);
    before = e;
  }
  if (is == must && calls <= right_calls) return;
  fail(
      is == must  ? calls == must
                        ? "elements are read one by one: one call can read what is in a row"
                        : "what one call can read is read by several"
      : is >= all ? "every rank reads all pieces: with N ranks each byte is read N times, and a "
                    "rank needs memory for the whole unit"
      : is > must ? "more is read than the shard needs: padding, or what another rank has"
                  : "an element of the shard was not read",
      place(part) + str(is, " elements in ", calls, " calls, must be ", must, " in ", right_calls));
}

void check(bool reads = false) {
  const Record seen = observe();
  const std::vector<ReshardCase> cases = reshard_cases(check_name(), options());
  std::vector<Part> parts;
  for (size_t k = 0; k < cases.size(); ++k)
    for (int rank = 0; rank < cases[k].now.ranks; ++rank)
      for (const State state : kStates) {
        const std::string name = part_name(k, rank, state);
        Part& part = parts.emplace_back(
            Part{cases[k], rank, state, seen.list(name), seen.rows<PieceRead>(name + " reads")});
        part.expect();
        check_size(part);
        for (size_t i = 0; i < part.got.size(); ++i) part.elements[i].is = part.got[i];
      }
  check_values(parts);
  if (reads) std::ranges::for_each(parts, check_reads);
}

}  // namespace

TEST_CASE("the same number of ranks", "[10][same][10 points]") { check(); }
TEST_CASE("more ranks", "[10][ranks][15 points]") { check(); }
TEST_CASE("fewer ranks", "[10][ranks][10 points]") { check(); }
TEST_CASE("empty shards", "[10][ranks][10 points]") { check(); }
TEST_CASE("what is read", "[10][reads][10 points]") { check(true); }
TEST_CASE("frozen parameters", "[10][frozen][15 points]") { check(); }
TEST_CASE("frozen or trained since", "[10][frozen][10 points]") { check(); }
TEST_CASE("tied weights", "[10][tied][10 points]") { check(); }
TEST_CASE("tied or untied since", "[10][tied][5 points]") { check(); }
TEST_CASE("all of these", "[10][all][5 points]") { check(true); }

}  // namespace zl::exercises
