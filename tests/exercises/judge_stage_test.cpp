// What the judge of exercises 05 to 07 says of numbers that no file within the rules can cause.
#include "tutorials/exercises/stages/judge_stage.h"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <numeric>

#include "tutorials/exercises/stages/judge_sizes.h"

namespace zl::exercises {
namespace {

// The rows of a right stage's "traffic r".
std::vector<double> right_traffic(const StageCase& c) {
  const StageSizes s = sizes_of(c);
  std::vector<double> rows;
  for (const auto& [key, t] : s.prediction.traffic.rows())
    if (key.purpose != Purpose::check)
      for (const int64_t value : {int64_t(key.collective), int64_t(key.purpose), t.calls * c.steps,
                                  t.elements * c.steps, t.sent_bytes_times_n * c.steps})
        rows.push_back(double(value));
  return rows;
}

// Judges a right stage's record after `change`. Rank 1 is the one to change.
std::string said(const std::string& check, const std::function<void(Record&)>& change) {
  const CheckOptions options{.seed = 7};
  const StageCase c = stage_case(StageKind::zero1, check, options);
  const StageSizes s = sizes_of(c);
  Record record;
  record.numbers["loss"] = record.numbers["norm"] = std::vector<double>(size_t(c.steps), 1);
  for (int r = 0; r < c.ranks; ++r) {
    const auto put = [&](const char* what, std::vector<double> values) {
      record.numbers[str(what, " ", r)] = std::move(values);
    };
    const auto& rest = s.prediction.device.rest;
    put("traffic", right_traffic(c));
    put("calls", {});
    put("rest", {rest.begin(), rest.end()});
    put("tensors", {double(std::accumulate(rest.begin(), rest.end(), int64_t(0)))});
  }
  if (change) change(record);
  const Verdict verdict = stage_exercise(StageKind::zero1).judge({.name = check}, options, record);
  CHECK(verdict.passed == verdict.meaning.empty());
  return verdict.meaning;
}

void add_call(Record& record, const StageCall& call) {
  for (const double number : to_numbers({call})) record.numbers["calls 1"].push_back(number);
}

}  // namespace

TEST_CASE("the judge of a stage counts all that the stage sends", "[exercises]") {
  const auto send = [](Collective collective, Purpose purpose, int64_t calls) {
    return said("traffic", [=](Record& record) {
      auto& rows = record.numbers.at("traffic 1");
      for (size_t at = 0; at < rows.size(); at += 5)
        if (rows[at] == double(collective) && rows[at + 1] == double(purpose)) {
          rows[at + 2] += double(calls);
          return;
        }
      for (const double number : {double(collective), double(purpose), double(calls), 8.0, 8.0})
        rows.push_back(number);
    });
  };
  CHECK(said("traffic", {}) == "");
  CHECK(send(Collective::all_gather, Purpose::norm, 1) ==
        "the stage sends values as norm: it must send gradients and parameters only");
  CHECK(send(Collective::broadcast, Purpose::checkpoint, 1) ==
        "the stage sends values as checkpoint: it must send gradients and parameters only");
  const std::string once = send(Collective::all_gather, Purpose::parameter, 1);
  CHECK(once.starts_with("the parameters are communicated too often: "));
  CHECK(once.find(" calls in 3 steps, not ") != std::string::npos);
  CHECK(send(Collective::reduce_scatter, Purpose::gradient, 3).find(" calls per step, not ") !=
        std::string::npos);
}

TEST_CASE("the judge of a stage says nothing of traffic after NaN", "[exercises]") {
  const std::string meaning = said("traffic", [](Record& record) {
    record.numbers["norm"][1] = std::numeric_limits<double>::quiet_NaN();
    record.numbers["traffic 1"].clear();
  });
  CHECK(meaning.starts_with("the gradient norm of step 2 is not finite"));
}

TEST_CASE("the judge of a stage compares tensors with what the system gave", "[exercises]") {
  const auto with = [](double more) {
    return said("memory at rest", [=](Record& record) { record.numbers["tensors 1"][0] += more; });
  };
  CHECK(with(0) == "");
  CHECK(with(256) == "");
  CHECK(with(8192) == "the rank's tensors take more memory than its ledger counts");
}

TEST_CASE("the judge of a stage sees every call of every rank", "[exercises]") {
  const auto after = [](StageCall call) {
    return said("memory at rest", [&](Record& record) { add_call(record, call); });
  };
  StageCall call{.function = StageFunction::reduces_every_micro_batch};
  CHECK(after(call) == "");
  call.largest_on_heap = 1025;
  CHECK(after(call).starts_with("the stage keeps values outside the ledger"));
  call.largest_on_heap = 0, call.heap = 1 << 15;
  CHECK(after(call).starts_with("the stage keeps values outside the ledger"));
  call.heap = 0, call.most[size_t(MemoryUse::communication)] = 4;
  CHECK(after(call).starts_with("the stage holds memory as communication"));
}

}  // namespace zl::exercises
