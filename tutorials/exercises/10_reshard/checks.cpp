// The checks of exercise 10.
#include <algorithm>
#include <numeric>

#include "tutorials/exercises/10_reshard/reshard_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace reshard_checks;

// A part as it was loaded, and as it must be.
struct Loaded {
  const Part& part;
  const Values &is, &pieces, &elements;  // the shard, and of each read
  Values saved = flat_memory(part.saved, part.saved, part.state),
         now = flat_memory(part.saved, part.now, part.state);
  size_t n = now.size() / size_t(part.now.ranks);
  Values must{now.begin() + part.rank * std::ptrdiff_t(n),
              now.begin() + (part.rank + 1) * std::ptrdiff_t(n)};

  // The sentence on what is wrong; none if nothing is.
  std::string values_meaning() const {
    const CheckOptions& check = options();
    const bool moments = part.state == State::moments, frozen = check.is("frozen parameters");
    if (is.size() != n)
      return check.is("tied weights")
                 ? "tied parameters have no memory: what follows them is earlier in the flat memory"
             : frozen && moments
                 ? "frozen parameters have no moments: what follows them is earlier there"
             : frozen ? "the weights of frozen parameters are lost: they have no moments, but they "
                        "have weights"
                      : "the shard has another size than it must have";
    const auto all = [&](const auto& fits) {
      for (size_t i = 0; i < n; ++i)
        if (is[i] != must[i] && !fits(i)) return false;
      return true;
    };
    const bool zero = all([&](size_t i) { return is[i] == 0; });
    if (is == must) return "";
    if (all([&](size_t i) { return is[i] < 0 && must[i] == 0; }))
      return "padding of the pieces is copied: it may hold anything, and here it must be 0";
    if (zero && all([&](size_t i) { return i > 0 && must[i] == must[i - 1] + 1; }))
      return "a parameter that goes on in the next rank's piece is loaded from the first piece "
             "only";
    const auto elsewhere = [&](size_t i) {  // in the piece of another number
      const auto at = size_t(std::ranges::find(saved, must[i]) - saved.begin());
      return must[i] != 0 && at * size_t(part.saved.ranks) / saved.size() != size_t(part.rank);
    };
    if (check.is("another number of ranks") &&
        std::ranges::count(pieces, part.rank) == std::ssize(pieces) &&
        all([&](size_t i) { return must[i] == 0 || elsewhere(i); }))
      return "each rank reads the piece with its number: with another number of ranks its shard is "
             "elsewhere";
    if (check.is("tied or untied since") && zero)
      return "a parameter that was tied is not in the pieces, and is loaded as 0: the one that it "
             "was tied to has its values";
    if (moments && all([&](size_t i) { return must[i] == 0; }))
      return "a parameter that was frozen has no moments in the pieces: they begin with 0, not "
             "with its weights";
    return "an element has a wrong value: which piece has the right one, and where in that piece?";
  }
  // A call begins where another parameter does, or another piece.
  std::string reads_meaning() const {
    size_t there = 0, calls = 0, before = 0;
    for (const double value : must) {
      if (value == 0) continue;
      const auto at = size_t(std::ranges::find(saved, value) - saved.begin());
      calls +=
          there++ == 0 || at != before + 1 || at * size_t(part.saved.ranks) % saved.size() == 0;
      before = at;
    }
    const auto read = size_t(std::accumulate(elements.begin(), elements.end(), 0.0));
    if (read == there)
      return elements.size() <= calls
                 ? ""
                 : "elements are read one by one, or in parts: one call can read what is in a row";
    return read >= saved.size() ? "every rank reads all pieces: with N ranks each byte is read N "
                                  "times, and a rank needs memory for the whole unit"
                                : "other elements are read than the shard needs, such as padding";
  }
  std::string text() const {
    std::string all;
    for (const ShardedUnit* unit : {&part.saved, &part.now}) {
      all += str(all.empty() ? "saved" : "\nloaded", " by ", unit->ranks, " ranks, parameters of");
      for (const auto [numel, frozen, tied_to] : unit->parameters)
        all += str(" ", numel, frozen ? " frozen" : "",
                   tied_to < 0 ? "" : str(" tied to ", tied_to), ",");
    }
    const auto at = size_t(std::ranges::mismatch(is, must).in1 - is.begin());
    if (at < std::min(is.size(), n))
      all += str("\nelement ", at, " is ", is[at], ", must be ", must[at],
                 ": element e of parameter p was saved as 1000 (p + 1) + e, as a moment 100000 "
                 "more, padding as -1; nan is outside of a piece");
    return str(all, "\nrank ", part.rank, ", ",
               part.state == State::weights ? "weights" : "moments", ": ", is.size(),
               " elements, must be ", n, "; ", elements.size(), " reads");
  }
};

void check() {
  const Record seen = observe();
  for (size_t k = 0; const Part& part : reshard_parts(options())) {
    const Loaded loaded{part, seen.list(str("shard ", k)), seen.list(str("pieces ", k)),
                        seen.list(str("elements ", k))};
    std::string meaning = loaded.values_meaning();
    if (meaning.empty() && options().is("what is read")) meaning = loaded.reads_meaning();
    if (!meaning.empty()) fail(meaning, loaded.text());
    ++k;
  }
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
