// The checks of exercise 11. Bytes are expected by the library's closed formulas.
#include <algorithm>
#include <numeric>

#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace choose_stage_checks;

constexpr const char* kSends[] = {
    "an all-reduce, which is two passes, once per step",
    "once per step a reduction, and a gather of what was updated",
    "a reduction in every micro-batch, and once per step a gather of what was updated",
    "in every micro-batch a reduction, a gather of all units, and one of the blocks for backward"};

// One answer about a stage, and what it must be.
struct Answer {
  const ChoiceCase& c;
  int stage;
  double is = 0, must = 0;
  const Training& t = c.training;
  LibraryNumbers right = library_numbers(t, stage);
  std::string who = name(kStages[stage]);
  bool one_node = t.ranks <= c.cluster.gpus_per_node;
  double link = one_node ? c.cluster.node_bandwidth : c.cluster.network_bandwidth;  // [B/s]
  // [n] with padding, and without.
  double all = std::accumulate(right.units.begin(), right.units.end(), 0.0),
         plain = std::accumulate(t.units.begin(), t.units.end(), 0.0);
  double forward = 2 * plain * double(t.tokens) / c.cluster.rate;  // [s] of one micro-batch

  double sent() const { return double(right.reduced + right.gathered); }
  double computing() const { return 3 * forward * double(t.micro_batches); }
  double seconds() const {
    const double A = double(t.micro_batches), backward = 2 * forward,
                 reductions = stage < 2 ? 1 : A, gathers = double(right.gathered) / link,
                 reduction = double(right.reduced) / reductions / link;
    if (stage == 3)  // its first gather sends as much as the reduction
      return A * (std::max(forward, reduction) + std::max(backward, gathers / A));
    return computing() + reductions * (std::max(backward, reduction) - backward) + gathers;
  }
  double asked(Asked what) const {
    return what == Asked::kept   ? double(right.kept)
           : what == Asked::peak ? double(right.peak)
           : what == Asked::sent ? sent()
                                 : seconds();
  }
};

// The stage that must be chosen, -1 if none fits.
int right_choice(const ChoiceCase& c) {
  int best = -1;
  for (int stage = 0; stage < 4; ++stage)
    if (const Answer a{c, stage}; a.right.peak <= c.cluster.memory)
      if (best < 0 || a.seconds() < Answer{c, best}.seconds()) best = stage;
  return best;
}

std::string case_text(const Training& t) {
  std::string text = str("ranks: ", t.ranks, ", micro-batches: ", t.micro_batches,
                         t.mixed ? ", mixed precision" : ", fp32", "\nunits without padding:");
  for (const int64_t n : t.units) text += str(" ", n);
  return text + "\n";
}

std::string kept_meaning(const Answer& a) {
  if (a.stage == 0 && a.is * a.all == a.must * a.plain)
    return "no padding: each unit takes a multiple of 16 * ranks elements";
  if (a.stage == 0)
    return str("ddp keeps ", a.is / a.all, " bytes per element, must keep 16: ",
               a.t.mixed ? "2 + 2, and 12 for the optimizer, which has an fp32 copy too"
                         : "4 + 4, and 8 for the optimizer's two moments");
  const double saved = a.all - a.all / a.t.ranks, bytes = (a.is - a.must) / saved;
  return str(
      a.who, " keeps ", std::abs(bytes), " bytes per element ",
      bytes > 0 ? "in full, must keep a shard of them" : "as a shard only, must keep them in full");
}

std::string peak_meaning(const Answer& a) {
  const std::string at = " at the peak of " + a.who + ": ";
  if (a.stage < 2) return a.who + " needs at its peak what it keeps, no more and no less";
  if (a.stage == 3 && a.is < a.must)  // zero2 is right
    return "full parameters are missing" + at + "root and a block that runs are unsharded";
  return str("too ", a.is > a.must ? "much" : "little", " is counted", at,
             "what is kept, and root and the largest block in full");
}

std::string sent_meaning(const Answer& a) {
  const double N = a.t.ranks, pass = a.all / N * (N - 1) * (a.t.mixed ? 2 : 4);
  if (a.is * (N - 1) == a.must * N)
    return "the ring factor is missing: of N shards a rank sends N-1 in each pass";
  return str(a.who, " sends ", a.is / pass, " times all units around the ring, must send ",
             a.must / pass, ": ", kSends[a.stage]);
}

std::string seconds_meaning(const Answer& a) {
  if (a.t.ranks == 1)
    return str("the computation takes ", a.is / a.must,
               " of its time: for each parameter, without "
               "padding, and token of all micro-batches 2 operations forward and 4 backward");
  if (std::abs(a.is - a.computing() - a.sent() / a.link) <= 1e-9 * a.is)
    return "computation and communication follow each other: in a pass they overlap";
  return str("the step of ", a.who, " takes another time where all ranks are in ",
             a.one_node ? "one node" : "several nodes");
}

// Asks for one number of each case and stage; one sentence on the first wrong one.
void check_stages() {
  constexpr std::string (*kMeanings[])(const Answer&) = {kept_meaning, peak_meaning, sent_meaning,
                                                         seconds_meaning};
  const Record seen = observe();
  const Asked asked = asked_by(options());
  size_t k = 0;
  const auto cases = choice_cases(options());
  for (const ChoiceCase& c : cases)
    for (int stage = 0; stage < 4; ++stage) {
      Answer a{c, stage, seen.list("answers").at(k++)};
      a.must = a.asked(asked);
      if (std::abs(a.is - a.must) <= 1e-9 * a.must) continue;
      std::string numbers = str(int64_t(a.is), " B, must be ", int64_t(a.must), " B");
      if (asked == Asked::seconds)
        numbers = str(a.is, " s, must be ", a.must, " s\nforward ", a.forward,
                      " s per micro-batch; per step ", a.right.reduced, " B are reduced, ",
                      a.right.gathered, " B gathered, at ", a.link, " B/s");
      fail(kMeanings[size_t(asked)](a), case_text(a.t) + a.who + ": " + numbers);
    }
}

void check_choice() {
  const Record seen = observe();
  size_t k = 0;
  const auto cases = choice_cases(options());
  for (const ChoiceCase& c : cases) {
    const double is = seen.list("answers").at(k++);
    const int must = right_choice(c);
    if (is == must) continue;
    const Answer chosen{c, std::clamp(int(is), 0, 3)}, best{c, std::max(0, must)};
    std::string numbers = case_text(c.training) + str("memory ", c.cluster.memory, " B");
    for (int stage = 0; stage < 4; ++stage) {
      const Answer a{c, stage};
      numbers += str("\n", a.who, ": peak ", a.right.peak, " B, ", a.seconds(), " s");
    }
    numbers += str("\nyours: ", is, ", must be ", must, " (-1: none)");
    const std::string is_chosen = chosen.who + " is chosen ";
    if (is >= 0 && chosen.right.peak > c.cluster.memory)
      fail(is_chosen + (must < 0 ? "where no stage fits" : "although its peak does not fit"),
           numbers);
    if (must >= 0 && best.right.peak == c.cluster.memory)
      fail("a stage whose peak is exactly the memory is refused: it fits", numbers);
    if (is < 0) fail("no stage is chosen although " + best.who + " fits", numbers);
    fail(is_chosen + "although " + best.who +
             (chosen.seconds() == best.seconds() ? " takes the same time and is earlier"
                                                 : ", which fits too, is faster") +
             ": the fastest is asked for, of equal ones the earliest",
         numbers);
  }
}

}  // namespace

TEST_CASE("between steps", "[11][kept][15 points]") { check_stages(); }
TEST_CASE("mixed precision", "[11][kept][10 points]") { check_stages(); }
TEST_CASE("at the peak", "[11][peak][15 points]") { check_stages(); }
TEST_CASE("sent", "[11][sent][15 points]") { check_stages(); }
TEST_CASE("several micro-batches", "[11][sent][10 points]") { check_stages(); }
TEST_CASE("seconds", "[11][seconds][10 points]") { check_stages(); }
TEST_CASE("the choice", "[11][choice][15 points]") { check_choice(); }
TEST_CASE("to the byte", "[11][choice][10 points]") { check_choice(); }

}  // namespace zl::exercises
