// The checks of exercises 05 to 07, whose answer is one stage file, and what they say of its
// traffic.
#include <map>

#include "tutorials/exercises/stages/evidence.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

// For one purpose, of one rank in the whole run.
using Sent = std::map<Collective, Traffic>;

Sent sent_as(Purpose purpose, const std::vector<SentRow>& rows) {
  Sent all;
  for (const SentRow& row : rows) {
    const bool known = row.purpose >= Purpose{} && row.purpose < Purpose::scales;
    if ((known ? row.purpose : Purpose::scales) != purpose) continue;
    Traffic& sum = all[row.collective];
    sum = {sum.calls + row.traffic.calls, sum.elements + row.traffic.elements,
           sum.sent_bytes_times_n + row.traffic.sent_bytes_times_n, row.traffic.ranks};
  }
  return all;
}

std::string calls_text(const Sent& rows) {
  std::string text;
  for (const auto& [collective, row] : rows)
    text += str(text.empty() ? "" : ", ", row.calls, " x ", name(collective), " (",
                cli::with_commas(row.sent_bytes()), " B sent)");
  return text.empty() ? "nothing" : text;
}

std::string meaning_of_traffic(Purpose purpose, const Sent& is, const Sent& must) {
  const std::string what = str("the ", name(purpose), "s");
  if (purpose != Purpose::gradient && purpose != Purpose::parameter)
    return str("the stage sends values as ", name(purpose),
               ": it must send gradients and parameters only");
  if (is.empty()) return what + " are not communicated";
  if (must.empty()) return what + " are communicated, which this stage does not need";
  const auto& [expected, right] = *must.begin();
  if (const Collective instead = is.begin()->first; !is.contains(expected))
    return str(name(instead), " instead of ", name(expected), " for ", what,
               instead == Collective::all_reduce
                   ? ": the bits may be right, but a rank sends twice as much"
                   : "");
  if (is.size() > 1)
    return str("more than ", name(expected), " is called for ", what,
               ": each further call costs as much again");
  const int64_t calls = is.begin()->second.calls;
  if (calls == right.calls) return what + "' calls have the wrong number of elements";
  return str(what, " are communicated too ", calls > right.calls ? "often: " : "rarely: ", calls,
             " calls, not ", right.calls);
}

void check_traffic(const StageEvidence& e) {
  for (const char* what : {"loss", "norm"})
    for (const double value : e.seen.list(what))
      if (!std::isfinite(value))
        fail(str("a ", what, " is not finite, so that the update was skipped and sent nothing: ",
                 "traffic is judged when the bits are right"));
  for (int r = 0; r < e.c.ranks; ++r)
    for (const Purpose purpose :
         {Purpose::gradient, Purpose::parameter, Purpose::norm, Purpose::loss, Purpose::check,
          Purpose::checkpoint, Purpose::scales}) {
      const Sent is = sent_as(purpose, e.sent(r)), must = sent_as(purpose, e.right_sent);
      if (is != must)
        fail(meaning_of_traffic(purpose, is, must),
             str("rank ", r, " of ", e.c.ranks, ", as ", name(purpose), ", in ", e.c.steps,
                 " steps: ", calls_text(is), "; must be ", calls_text(must)));
    }
  for (const StageCall& call : e.calls(0))
    if (call.waits > 0 && !call.is("Work::wait"))
      fail(str(call.function, " waits for a collective itself: it must return the Work, so ",
               "that the schedule waits and units of one bucket communicate together"),
           str("first at event ", call.event, " of rank 0"), call.event);
}

using Check = void(const StageEvidence&);

void check(Check* first, Check* second = nullptr) {
  const StageEvidence e;
  first(e);
  if (second) second(e);
}

}  // namespace

TEST_CASE("memory at rest", "[05][06][07][start][5 points]") { check(check_each_call); }
TEST_CASE("one rank", "[05][06][07][start][5 points]") { check(check_bits); }
TEST_CASE("bits at 2 ranks", "[05][06][07][bits][10 points]") { check(check_bits); }
TEST_CASE("bits at 3 ranks", "[05][06][07][bits][15 points]") { check(check_bits); }
TEST_CASE("three micro-batches", "[05][06][07][accumulation][20 points]") { check(check_bits); }
TEST_CASE("traffic", "[05][06][07][traffic][15 points]") { check(check_traffic); }
TEST_CASE("peak", "[05][06][07][peak][20 points]") { check(check_each_call); }
TEST_CASE("a unit that runs twice", "[05][06][07][models][10 points]") {
  check(check_bits, check_each_call);
}

}  // namespace zl::exercises
