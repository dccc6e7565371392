// The checks of exercise 11. Bytes are expected by the library's closed formulas.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>

#include "tensor/error.h"
#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace choose_stage_checks;

constexpr const char* kStageNames[] = {"ddp", "zero1", "zero2", "zero3"};
constexpr const char* kSends[] = {
    "an all-reduce, which is two passes, once per step",
    "once per step a reduction, and a gather of what was updated",
    "a reduction in every micro-batch, and once per step a gather of what was updated",
    "in every micro-batch a reduction, a gather of all units, and one of the blocks for backward"};

// One answer, and what it must be.
struct Answer {
  const ChoiceCase& c;
  int stage;
  double is, must;
  const Training& t = c.training;
  LibraryNumbers right = library_numbers(t, stage);
  std::string who = kStageNames[stage];
  int64_t element = t.mixed ? 2 : 4;  // [B]
  // [n] with padding, and without.
  double all = std::accumulate(right.units.begin(), right.units.end(), 0.0),
         plain = std::accumulate(t.units.begin(), t.units.end(), 0.0),
         root = double(right.units[0]),
         block = std::accumulate(right.units.begin() + 1, right.units.end(), 0.0,
                                 [](double n, int64_t m) { return std::max(n, double(m)); });

  double link() const {  // [B/s]
    const bool one_node = t.ranks <= c.cluster.gpus_per_node;
    return one_node ? c.cluster.node_bandwidth : c.cluster.network_bandwidth;
  }
  // [s] of one micro-batch
  double forward() const { return 2 * plain * double(t.tokens) / c.cluster.rate; }
};

double right_seconds(const Answer& a) {
  const double micro_batches = double(a.t.micro_batches), f = a.forward(), b = 2 * f;
  const double reductions = a.stage < 2 ? 1 : micro_batches,
               reduction = double(a.right.reduced) / reductions / a.link(),
               gathers = double(a.right.gathered) / a.link();
  if (a.stage == 3)  // its first gather sends as much as the reduction
    return micro_batches * (std::max(f, reduction) + std::max(b, gathers / micro_batches));
  return micro_batches * (f + b) + reductions * (std::max(b, reduction) - b) + gathers;
}

// The stage that must be chosen, -1 if none fits.
int right_choice(const ChoiceCase& c) {
  int best = -1;
  double least = 0;
  for (int stage = 0; stage < 4; ++stage) {
    const Answer a{c, stage, 0, 0};
    if (a.right.peak > c.cluster.memory || (best >= 0 && right_seconds(a) >= least)) continue;
    best = stage, least = right_seconds(a);
  }
  return best;
}

std::string case_text(const Training& t) {
  std::string text = str("ranks: ", t.ranks, ", micro-batches: ", t.micro_batches,
                         t.mixed ? ", mixed precision" : ", fp32", "\nunits without padding:");
  for (const int64_t n : t.units) text += str(" ", n);
  return text + "\n";
}

// Asks for one number of each case and stage. `meaning` is one sentence on the first wrong one.
void check_stages(double (*right)(const Answer&), std::string (*meaning)(const Answer&)) {
  const Record seen = observe();
  size_t k = 0;
  const auto cases = choice_cases(check_name(), options());
  for (const ChoiceCase& c : cases)
    for (int stage = 0; stage < 4; ++stage) {
      Answer a{c, stage, seen.list("answers").at(k++), 0};
      a.must = right(a);
      if (std::abs(a.is - a.must) <= 1e-9 * a.must) continue;
      const std::string numbers =
          right == right_seconds
              ? str(a.is, " s, must be ", a.must, " s\nforward ", a.forward(),
                    " s per micro-batch; per step ", a.right.reduced, " B are reduced, ",
                    a.right.gathered, " B gathered, at ", a.link(), " B/s")
              : str(int64_t(a.is), " B, must be ", int64_t(a.must), " B");
      fail(meaning(a), case_text(a.t) + a.who + ": " + numbers);
    }
}

double kept(const Answer& a) { return double(a.right.kept); }
double peak(const Answer& a) { return double(a.right.peak); }
double sent(const Answer& a) { return double(a.right.sent); }

std::string kept_meaning(const Answer& a) {
  if (a.stage == 0 && a.is * a.all == a.must * a.plain)
    return "no padding: each unit takes a multiple of 16 * ranks elements";
  if (a.stage == 0 && std::fmod(a.is, a.all) == 0)
    return str("ddp keeps ", a.is / a.all, " bytes per element, must keep 16: ",
               a.t.mixed ? "2 + 2, and 12 for the optimizer, which has an fp32 copy too"
                         : "4 + 4, and 8 for the optimizer's two moments");
  if (a.stage == 0)
    return "the padding is wrong: that of each unit goes to a multiple of 16 * ranks elements";
  const double saved = a.all - a.all / a.t.ranks, bytes = (a.is - a.must) / saved;
  if (bytes != std::floor(bytes)) return a.who + " keeps too much or too little; ddp is right";
  return str(
      a.who, " keeps ", std::abs(bytes), " bytes per element ",
      bytes > 0 ? "in full, must keep a shard of them" : "as a shard only, must keep them in full");
}

std::string peak_meaning(const Answer& a) {
  const double more = (a.is - a.must) / double(a.element), copies = a.stage - 1;
  const std::string at = " at the peak of " + a.who + ": ";
  if (a.stage < 2) return a.who + " needs at its peak what it keeps, no more and no less";
  if (a.stage == 3 && more == -a.root - a.block)  // zero2 is right
    return "full parameters are missing" + at + "a unit that runs is unsharded";
  if (more == -copies * (a.root + a.block))
    return "what is full is missing" + at + "a unit's gradient is until it is reduced";
  if (more == copies * (a.all - a.root - a.block))
    return "all units are full" + at + "one block after another is, beside root";
  return str("too ", more > 0 ? "much" : "little", " is counted", at,
             "what is kept, and root and the largest block in full");
}

std::string sent_meaning(const Answer& a) {
  const double N = a.t.ranks, pass = a.all / N * (N - 1) * double(a.element);
  if (N == 1) return "one rank sends nothing: of N shards a rank sends N-1";
  if (a.is * (N - 1) == a.must * N)
    return "the ring factor is missing: of N shards a rank sends N-1 in each pass";
  if (a.is == a.must * N) return "the bytes are those of all ranks together, not of one";
  return str(a.who, " sends ", a.is / pass, " times all units around the ring, must send ",
             a.must / pass, ": ", kSends[a.stage]);
}

std::string seconds_meaning(const Answer& a) {
  if (a.t.ranks == 1)
    return str("the computation takes ", a.is / a.must,
               " of its time: for each parameter, without "
               "padding, and token of all micro-batches 2 operations forward and 4 backward");
  const double computing = 3 * a.forward() * double(a.t.micro_batches);
  if (std::abs(a.is - computing - sent(a) / a.link()) <= 1e-9 * a.is)
    return "computation and communication follow each other: in a pass they overlap";
  return str("the step of ", a.who, " takes another time where all ranks are in ",
             a.t.ranks <= a.c.cluster.gpus_per_node ? "one node" : "several nodes");
}

void check_choice() {
  const Record seen = observe();
  size_t k = 0;
  const auto cases = choice_cases(check_name(), options());
  for (const ChoiceCase& c : cases) {
    const double is = seen.list("answers").at(k++);
    const int must = right_choice(c);
    if (is == must) continue;
    const Answer chosen{c, std::clamp(int(is), 0, 3), 0, 0}, best{c, std::max(0, must), 0, 0};
    std::string numbers = str("memory ", c.cluster.memory, " B");
    for (int stage = 0; stage < 4; ++stage) {
      const Answer a{c, stage, 0, 0};
      numbers += str("\n", a.who, ": peak ", a.right.peak, " B, ", right_seconds(a), " s");
    }
    numbers =
        case_text(c.training) + numbers + str("\nyours: ", is, ", must be ", must, " (-1: none)");
    const std::string is_chosen = chosen.who + " is chosen ";
    if (is != chosen.stage && is != -1) fail(str("stage ", is, " does not exist"));
    if (is >= 0 && chosen.right.peak > c.cluster.memory)
      fail(is_chosen + (must < 0 ? "where no stage fits" : "although its peak does not fit"),
           numbers);
    if (must >= 0 && best.right.peak == c.cluster.memory)
      fail("a stage whose peak is exactly the memory is refused: it fits", numbers);
    if (is < 0) fail("no stage is chosen although " + best.who + " fits", numbers);
    const bool same = right_seconds(chosen) == right_seconds(best);
    fail(is_chosen + "although " + best.who +
             (same ? " takes the same time and is earlier" : ", which fits too, is faster") +
             ": the fastest is asked for, of equal ones the earliest",
         numbers);
  }
}

}  // namespace

TEST_CASE("between steps", "[11][kept][15 points]") { check_stages(kept, kept_meaning); }
TEST_CASE("mixed precision", "[11][kept][10 points]") { check_stages(kept, kept_meaning); }
TEST_CASE("at the peak", "[11][peak][15 points]") { check_stages(peak, peak_meaning); }
TEST_CASE("sent", "[11][sent][15 points]") { check_stages(sent, sent_meaning); }
TEST_CASE("several micro-batches", "[11][sent][10 points]") { check_stages(sent, sent_meaning); }
TEST_CASE("seconds", "[11][seconds][10 points]") { check_stages(right_seconds, seconds_meaning); }
TEST_CASE("the choice", "[11][choice][15 points]") { check_choice(); }
TEST_CASE("to the byte", "[11][choice][10 points]") { check_choice(); }

}  // namespace zl::exercises
