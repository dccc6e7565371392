// The checks of exercise 11.
#include <algorithm>

#include "tutorials/exercises/11_choose_stage/choose_stage_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

// With its seconds, which a student's file cannot include.
struct Choice : choose_stage_checks::Choice {
  double forward = 2 * plain * double(t.tokens) / cluster.rate;  // [s] of one micro-batch
  bool one_node = t.ranks <= cluster.gpus_per_node;
  double link = one_node ? cluster.node_bandwidth : cluster.network_bandwidth;  // [B/s]
  std::string who = name(kStages[stage]);

  double seconds() const {
    const double backward = 2 * forward, reductions = stage < 2 ? 1 : A,
                 gathers = sent_for(Purpose::parameter) / link,
                 reduction = sent_for(Purpose::gradient) / reductions / link;
    if (stage == 3)  // its first gather sends as much as the reduction
      return A * (std::max(forward, reduction) + std::max(backward, gathers / A));
    return 3 * forward * A + reductions * (std::max(backward, reduction) - backward) + gathers;
  }
  bool fits() const { return peak() <= double(cluster.memory); }
  std::string text() const {
    std::string all = str("ranks: ", t.ranks, ", micro-batches: ", t.micro_batches,
                          t.mixed ? ", mixed precision" : ", fp32", "\nunits without padding:");
    for (const int64_t n : t.units) all += str(" ", n);
    return all;
  }
};

std::string kept_meaning(const Choice& c, double is) {
  if (c.stage == 0 && is * c.all == c.kept() * c.plain)
    return "no padding: each unit takes a multiple of 16 * ranks elements";
  if (c.stage == 0)
    return str("ddp keeps ", is / c.all, " bytes per element, must keep 16: ",
               c.t.mixed ? "2 + 2, and 12 for the optimizer, which has an fp32 copy too"
                         : "4 + 4, and 8 for the optimizer's two moments");
  const double bytes = (is - c.kept()) / (c.all - c.all / c.N);
  return str(
      c.who, " keeps ", std::abs(bytes), " bytes per element ",
      bytes > 0 ? "in full, must keep a shard of them" : "as a shard only, must keep them in full");
}

std::string peak_meaning(const Choice& c, double is) {
  const std::string at = " at the peak of " + c.who + ": ";
  if (c.stage < 2) return c.who + " needs at its peak what it keeps, no more and no less";
  if (c.stage == 3 && is < c.peak())  // zero2 is right
    return "full parameters are missing" + at + "root and a block that runs are unsharded";
  return str("too ", is > c.peak() ? "much" : "little", " is counted", at,
             "what is kept, and root and the largest block in full");
}

std::string sent_meaning(const Choice& c, double is) {
  static constexpr const char* kSends[] = {
      "an all-reduce, which is two passes, once per step",
      "once per step a reduction, and a gather of what was updated",
      "a reduction in every micro-batch, and once per step a gather of what was updated",
      "in every micro-batch a reduction, a gather of all units, and one of the blocks for "
      "backward"};
  const double pass = c.all / c.N * (c.N - 1) * (c.t.mixed ? 2 : 4);
  if (is * (c.N - 1) == c.sent() * c.N)
    return "the ring factor is missing: of N shards a rank sends N-1 in each pass";
  return str(c.who, " sends ", is / pass, " times all units around the ring, must send ",
             c.sent() / pass, ": ", kSends[c.stage]);
}

std::string seconds_meaning(const Choice& c, double is) {
  if (c.t.ranks == 1)
    return str("the computation takes ", is / c.seconds(),
               " of its time: for each parameter, without padding, and token of all micro-batches "
               "2 operations forward and 4 backward");
  if (std::abs(is - 3 * c.forward * c.A - c.sent() / c.link) <= 1e-9 * is)
    return "computation and communication follow each other: in a pass they overlap";
  return str("the step of ", c.who, " takes another time where all ranks are in ",
             c.one_node ? "one node" : "several nodes", ": forward takes ", c.forward,
             " s per micro-batch, the link ", c.link, " B/s");
}

// Asks for one number of each case and stage; one sentence on the first wrong one.
void check(double (Choice::*right)() const, std::string (*meaning)(const Choice&, double)) {
  const Record seen = observe();
  for (size_t k = 0; const auto& one : choose_stage_checks::choices(options())) {
    const Choice c{one};
    const double is = seen.list("answers").at(k++);
    compare({.what = c.who,
             .is = {is},
             .must = {(c.*right)()},
             .tolerance = 1e-9,
             .meaning = meaning(c, is),
             .details = c.text()});
  }
}

void check_choice() {
  const Record seen = observe();
  for (size_t k = 0; const auto& one : choose_stage_checks::choices(options())) {
    const double is = seen.list("answers").at(k++);
    std::vector<Choice> of;
    std::string numbers = Choice{one}.text() + str("\nmemory ", one.cluster.memory, " B");
    int must = -1;
    for (int stage = 0; stage < 4; ++stage) {
      const Choice& c = of.emplace_back(Choice{{one.cluster, one.t, stage}});
      numbers += str("\n", c.who, ": peak ", int64_t(c.peak()), " B, ", c.seconds(), " s");
      if (c.fits() && (must < 0 || c.seconds() < of[size_t(must)].seconds())) must = stage;
    }
    const Choice &chosen = of[size_t(std::clamp(int(is), 0, 3))],
                 &best = of[size_t(std::max(0, must))];
    const std::string is_chosen = chosen.who + " is chosen ";
    compare({.what = "the stage (-1: none)",
             .is = {is},
             .must = {double(must)},
             .meaning = is >= 0 && !chosen.fits()
                            ? is_chosen + (must < 0 ? "where no stage fits"
                                                    : "although its peak does not fit")
                        : best.peak() == double(one.cluster.memory)
                            ? "a stage whose peak is exactly the memory is refused: it fits"
                        : is < 0 ? "no stage is chosen although " + best.who + " fits"
                                 : is_chosen + "although " + best.who +
                                       (chosen.seconds() == best.seconds()
                                            ? " takes the same time and is earlier"
                                            : ", which fits too, is faster") +
                                       ": the fastest is asked for, of equal ones the earliest",
             .details = numbers});
  }
}

}  // namespace

TEST_CASE("between steps", "[11][kept][15 points]") { check(&Choice::kept, kept_meaning); }
TEST_CASE("mixed precision", "[11][kept][10 points]") { check(&Choice::kept, kept_meaning); }
TEST_CASE("at the peak", "[11][peak][15 points]") { check(&Choice::peak, peak_meaning); }
TEST_CASE("sent", "[11][sent][15 points]") { check(&Choice::sent, sent_meaning); }
TEST_CASE("several micro-batches", "[11][sent][10 points]") { check(&Choice::sent, sent_meaning); }
TEST_CASE("seconds", "[11][seconds][10 points]") { check(&Choice::seconds, seconds_meaning); }
TEST_CASE("the choice", "[11][choice][15 points]") { check_choice(); }
TEST_CASE("to the byte", "[11][choice][10 points]") { check_choice(); }

}  // namespace zl::exercises
