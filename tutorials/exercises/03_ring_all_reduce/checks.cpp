// The checks of exercise 03: sums, messages, bytes and memory of all ranks.
#include <algorithm>

#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

struct Ring {
  Record seen = observe();
  ring_checks::RingCase c = ring_checks::make_case(options());
  int N = c.ranks;
  // What the checks before say.
  std::string where = options().is("sum at 3 ranks") ? "right at 2 ranks only: " : "";
};

// `why`: what ended the communication; empty if nothing did.
void check_neighbours(const Ring& ring, const std::string& why) {
  const int N = ring.N;
  bool through_0 = N > 2, reversed = true;
  std::string wrong;
  for (int r = 0; r < N; ++r)
    for (const char* what : {"sends to", "receives from"})
      for (const double peer : ring.seen.of(what, r)) {
        const int turn = (*what == 's' ? int(peer) - r : r - int(peer)) + N;  // N + 1: around
        through_0 = through_0 && (r == 0 || peer == 0);
        reversed = reversed && turn % N == N - 1;
        if (turn % N != 1 % N && wrong.empty())
          wrong = str("rank ", r, " ", what, " rank ", peer, " of ", N, "\n", why);
      }
  if (wrong.empty()) return;
  fail(through_0  ? "all values go through rank 0, which sends (N - 1) n values; in a ring a rank "
                    "sends 2 (N - 1) / N n"
       : reversed ? "the ring turns the other way: rank r sends to rank r + 1"
                  : ring.where + "a message does not go around the ring: rank r sends to rank " +
                        "r + 1 and receives from rank r - 1, modulo N",
       wrong);
}

void check_communication(const Ring& ring) {
  const std::string error = ring.seen.text("communication"),
                    why = error.substr(0, error.find(". If "));
  if (error.empty()) return;
  check_neighbours(ring, why);
  static constexpr std::pair<const char*, const char*> kMeanings[] = {
      {" has ended,", "a rank returns while another one waits for its message"},
      {"waits in send",
       "every rank waits until its send has been received, and no rank receives: start the send, "
       "receive, then wait for the send"},
      {"waits in receive", "every rank waits to receive, and none sends: start the send first"},
      {"dropped the Work", "a send or receive was not waited for: keep its Work, and call wait()"},
      {"",
       "sends and receives do not match: each send needs a receive, and both sides must take the "
       "same chunk in a step"}};
  for (const auto& [text, meaning] : kMeanings)
    if (why.find(text) != why.npos) fail(ring.where + meaning, why);
}

// What wrong results are made of: whole sums, values of one rank, or several times too much. Empty
// if they say nothing.
std::string meaning_of_sums(const Ring& ring, const std::vector<Values>& results,
                            const Values& sum) {
  const size_t whole = sum.size() / results.size() * results.size();
  if (whole > 0 && std::ranges::all_of(results, [&](const Values& is) {
        return std::equal(is.begin(), is.begin() + int64_t(whole), sum.begin());
      }))
    return str("only what follows the first ", whole, " elements is wrong: n / N is rounded down, ",
               "and what is left over is in no chunk");
  if (std::ranges::count(results, sum) == 1)
    return str("only rank ", std::ranges::find(results, sum) - results.begin(),
               " has the sum; every rank must have it at the end");
  bool one_sum = true, single = true, more = false, multiples = true;
  for (size_t i = 0; i < sum.size(); ++i) {
    int sums = 0;
    for (const Values& result : results) {
      const double is = result[i];
      sums += is == sum[i];
      single = single && std::ranges::any_of(ring.c.values, [=](auto& v) { return v[i] == is; });
      more = more || std::abs(is) > std::abs(sum[i]);
      multiples = multiples && std::fmod(is, ring.c.values[0][i]) == 0;
    }
    one_sum = one_sum && sums == 1;
  }
  return one_sum && !more
             ? "each rank has the sum in one chunk only: the second half, which sends the sums "
               "around, is missing or does not store what arrives"
         : single ? "every chunk holds the values of one rank: what arrives in the first half must "
                    "be added to the chunk, and each step must send what the step before changed"
         : !multiples ? ""
         : more ? "values of a rank are counted more than once: in the second half what arrives "
                  "must replace a chunk, not be added"
                : "values of a rank are missing: a chunk was sent on before they were added to "
                  "it, or another chunk than the one that was just reduced";
}

void check_sums(const Ring& ring) {
  check_communication(ring);
  if (ring.N == 1 && !ring.seen.of("sends to", 0).empty())
    fail("one rank sends messages to itself: with N = 1 there is nothing to send");
  Values sum(size_t(ring.c.n()));
  std::vector<Values> results;
  for (int r = 0; r < ring.N; ++r) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += double(ring.c.values[size_t(r)][i]);
    results.push_back(ring.seen.of("result", r));
  }
  const char* second = ring_checks::is_second_call(options()) ? "in the second call, " : "";
  const std::string meaning = meaning_of_sums(ring, results, sum);
  for (int r = 0; r < ring.N; ++r)
    compare({.what = str(second, "the result of rank ", r),
             .is = results[size_t(r)],
             .must = sum,
             .tolerance = options().is("same bits on every rank") ? 1e-6 : 0,
             .factors = {{"N, the number of ranks", double(ring.N)}},
             .meaning = meaning.empty() ? "" : ring.where + meaning});
}

}  // namespace

TEST_CASE("sum at 2 ranks", "[03][two ranks][15 points]") { check_sums({}); }
TEST_CASE("sum at 3 ranks", "[03][sums][15 points]") { check_sums({}); }
TEST_CASE("size that N does not divide", "[03][sums][15 points]") { check_sums({}); }
TEST_CASE("fewer values than ranks", "[03][sums][5 points]") { check_sums({}); }
TEST_CASE("one rank", "[03][one rank][5 points]") { check_sums({}); }

TEST_CASE("same bits on every rank", "[03][bits][10 points]") {
  const Ring ring;
  check_sums(ring);
  for (int r = 1; r < ring.N; ++r)
    compare({.what = str("the result of rank ", r),
             .is = ring.seen.of("result", r),
             .must = ring.seen.of("result", 0),
             .meaning = "ranks have different bits: they add the same values in different orders; "
                        "each chunk must be summed once, and that sum sent around"});
}

TEST_CASE("messages to neighbours", "[03][traffic][10 points]") {
  const Ring ring;
  check_sums(ring);
  check_neighbours(ring, "");
  const size_t most = 2 * size_t(ring.N - 1);
  for (int r = 0; r < ring.N; ++r)
    for (const char* what : {"sends to", "receives from"})
      if (const size_t n = ring.seen.of(what, r).size(); n > most)
        fail("there are more messages than 2 (N - 1) per rank",
             str("rank ", r, " of ", ring.N, " ", what, " ranks ", n, " times, must be ", most));
}

TEST_CASE("bytes sent", "[03][traffic][15 points]") {
  const Ring ring;
  check_sums(ring);
  const auto n = double(ring.c.n()), N = double(ring.N), must = 2 * (N - 1) * n;
  double all = 0, longest = 0;
  std::string details = str("n is ", n, ": 2 (N - 1) / N x 4 n = ", 4 * must / N, " B; sent:");
  for (int r = 0; r < ring.N; ++r) {
    const double before = all;
    for (const double elements : ring.seen.of("elements", r))
      all += elements, longest = std::max(longest, elements);
    details += str(r ? ", " : " ", 4 * (all - before), " B by rank ", r);
  }
  if (longest == n)
    fail("messages carry all n values: each message of a ring carries one chunk, n / N values",
         details);
  if (all != must) fail(str("the ranks send ", all / must, " x the bytes of a ring"), details);
  if (longest > std::ceil(n / N)) fail("the chunks are not nearly equal", details);
}

TEST_CASE("memory", "[03][memory][10 points]") {
  const Ring ring;
  check_sums(ring);
  for (int r = 0; r < ring.N; ++r)
    if (const Values& memory = ring.seen.of("memory", r); memory[0] > 0)
      fail("memory is allocated: receive each chunk into scratch, or into its place in values",
           str("rank ", r, " makes ", memory[0], " allocations; its peak is ", memory[1],
               " B above values and scratch"));
}

}  // namespace zl::exercises
