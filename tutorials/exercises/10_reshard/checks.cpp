// The checks of exercise 10. Positions are expected by the library's Partition.
#include <algorithm>

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
  bool of_moments = false;
  double must = 0, is = 0;
};

std::vector<Element> right_elements(const Part& part, const std::vector<PieceRead>& reads) {
  const FlatLayout from(part.saved, part.state), to(part.now, part.state);
  const bool own =
      std::ranges::all_of(reads, [&](const PieceRead& read) { return read.piece == part.rank; });
  std::vector<Element> elements(size_t(to.shard), {.of_moments = part.state == State::moments});
  for (size_t p = 0; p < to.begin.size(); ++p)
    for (int64_t e = 0; to.begin[p] >= 0 && e < part.now.parameters[p].numel; ++e) {
      const int64_t at = to.begin[p] + e - part.rank * to.shard;
      if (at < 0 || at >= to.shard) continue;
      const int tied_to = part.saved.parameters[p].tied_to,
                source = tied_to >= 0 ? tied_to : int(p);
      Element& one = elements[size_t(at)];
      one.parameter = int(p), one.was_tied = tied_to >= 0;
      if (from.begin[size_t(source)] < 0) continue;
      one.must = saved_value(part.state, source, e);
      one.piece = int((from.begin[size_t(source)] + e) / from.shard);
      one.own_piece = own && one.piece != part.rank;
      const Element before = at > 0 ? elements[size_t(at - 1)] : Element();
      one.goes_on =
          before.parameter == one.parameter && (before.goes_on || before.piece != one.piece);
    }
  return elements;
}

const char* name(State state) { return state == State::weights ? "weights" : "moments"; }

std::string text(const Part& part) {
  std::string all;
  for (const ShardedUnit* unit : {&part.saved, &part.now}) {
    all += str(all.empty() ? "saved" : "\nloaded", " by ", unit->ranks, " ranks, parameters of");
    for (const UnitParameter& p : unit->parameters)
      all += str(" ", p.numel, p.frozen ? " frozen" : "",
                 p.tied_to >= 0 ? str(" tied to ", p.tied_to) : "", ",");
  }
  return str(all, "\nrank ", part.rank, ", ", name(part.state), ": ");
}

bool of_weights(double value) { return value > 0 && value < 100'000; }

// "element 12 of parameter 3's weights"
std::string origin(double value) {
  if (std::isnan(value)) return "nothing: it was read outside of a piece";
  if (value <= 0) return value == 0 ? "0" : "padding of a piece";
  const auto number = int64_t(value);
  return str("element ", number % 1'000, " of parameter ", number % 100'000 / 1'000 - 1, "'s ",
             name(of_weights(value) ? State::weights : State::moments));
}

void check_size(const Part& part, size_t is, size_t must) {
  if (is == must) return;
  const bool weights = part.state == State::weights,
             as_other = int64_t(is) == FlatLayout(part.now, State(weights)).shard;
  fail(
      as_other && weights
          ? "the weights of frozen parameters are lost: they have no moments, but they have weights"
      : as_other ? "frozen parameters have no moments: what follows them is earlier there"
      : is > must
          ? "tied parameters have no memory: what follows them is earlier in the flat memory"
          : "the shard has another size than it must have",
      text(part) + str(is, " elements, must have ", must));
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
    {[](E e) { return e.of_moments && of_weights(e.is) && e.must == 0; },
     "a parameter that was frozen has no moments in the pieces: they begin with 0, not with its "
     "weights"},
    {[](E) { return true; },
     "an element has a wrong value: which piece has the right one, and where in that piece?"}};

void check_reads(const Part& part, const std::vector<PieceRead>& reads,
                 const std::vector<Element>& elements) {
  const double all = double(FlatLayout(part.saved, part.state).full), calls = double(reads.size());
  double is = 0, must = 0, right_calls = 0;
  for (const PieceRead& read : reads) is += double(read.elements);
  Element before;
  for (const Element& e : elements) {
    must += e.piece >= 0;
    right_calls += e.piece >= 0 && (e.parameter != before.parameter || e.piece != before.piece);
    before = e;
  }
  if (is == must && calls <= right_calls) return;
  fail(is == must  ? "elements are read one by one, or in parts: one call can read what is in a row"
       : is >= all ? "every rank reads all pieces: with N ranks each byte is read N times, and a "
                     "rank needs memory for the whole unit"
                   : "other elements are read than the shard needs, such as padding",
       text(part) + str(is, " elements in ", calls, " calls, must be ", must, " in ", right_calls));
}

void check() {
  const Record seen = observe();
  std::vector<Element> wrong;
  std::string details;
  for (size_t k = 0; const Part& part : reshard_parts(options())) {
    const auto reads = seen.rows<PieceRead>(str("reads ", k));
    const Values& got = seen.list(str("shard ", k++));
    std::vector<Element> elements = right_elements(part, reads);
    check_size(part, got.size(), elements.size());
    if (options().is("what is read")) check_reads(part, reads, elements);
    for (size_t i = 0; Element & e : elements) {
      e.is = got[i++];
      if (e.is == e.must) continue;
      if (wrong.empty())
        details = str(text(part), "element ", i - 1, " of ", got.size(), " is ", origin(e.is),
                      ", must be ", origin(e.must));
      wrong.push_back(e);
    }
  }
  for (const auto& [fits, meaning] : kMeanings)
    if (!wrong.empty() && std::ranges::all_of(wrong, fits)) fail(meaning, details);
}

}  // namespace

TEST_CASE("the same number of ranks", "[10][same][10 points]") { check(); }
TEST_CASE("another number of ranks", "[10][ranks][35 points]") { check(); }
TEST_CASE("frozen parameters", "[10][frozen][15 points]") { check(); }
TEST_CASE("frozen or trained since", "[10][frozen][10 points]") { check(); }
TEST_CASE("tied weights", "[10][tied][10 points]") { check(); }
TEST_CASE("tied or untied since", "[10][tied][5 points]") { check(); }
TEST_CASE("what is read", "[10][reads][15 points]") { check(); }

}  // namespace zl::exercises
