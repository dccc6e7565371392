#include <algorithm>
#include <cmath>

#include "stages/predict/clock/collective_fit.h"
#include "stages/predict/clock/collective_time.h"
#include "stages/predict/ground_truth/clock_errors.h"

namespace zl {
namespace {

constexpr size_t kFewest = 5;  // calls to fit to, and to test on

ErrorSum held_out(const std::vector<PublishedCall>& table) {
  std::vector<TimedCall> fitted, tested;
  for (const PublishedCall& call : table) {
    const bool even = std::lround(std::log2(double(call.bytes))) % 2 == 0;
    (even ? fitted : tested).push_back({call.bytes, call.seconds});
  }
  ErrorSum error;
  if (fitted.size() < kFewest || tested.size() < kFewest) return error;
  const Collective collective = table.front().collective;
  const int ranks = table.front().ranks;
  const CollectiveTerms terms = fit_terms(fitted, collective, ranks);
  for (const TimedCall& call : tested)
    error.add(seconds_of(terms, collective, call.bytes, ranks), call.seconds);
  return error;
}

}  // namespace

void ErrorSum::add(double predicted, double measured) {
  const double error = std::abs(predicted / measured - 1);
  ++count;
  sum += error;
  largest = std::max(largest, error);
}

void ErrorSum::add(const ErrorSum& other) {
  count += other.count;
  sum += other.sum;
  largest = std::max(largest, other.largest);
}

std::vector<CallErrors> collective_errors(const std::vector<PublishedCall>& calls) {
  std::vector<CallErrors> all;
  for (size_t begin = 0; begin < calls.size();) {
    const PublishedCall& first = calls[begin];
    std::vector<PublishedCall> table;
    for (; begin < calls.size(); ++begin) {
      const PublishedCall& call = calls[begin];
      if (call.machine != first.machine || call.system != first.system ||
          call.collective != first.collective || call.ranks != first.ranks)
        break;
      table.push_back(call);
    }
    CallErrors errors{.machine = first.machine,
                      .system = first.system,
                      .collective = first.collective,
                      .ranks = first.ranks,
                      .nodes = first.nodes,
                      .own = held_out(table)};
    Machine machine = with(find_machine(first.machine), first.change);
    machine.collectives.clear();
    for (const PublishedCall& call : table) {
      const double seconds = collective_seconds(machine, call.collective, call.bytes,
                                                {.ranks = call.ranks, .nodes = call.nodes});
      const auto above = std::ranges::upper_bound(kSizes, call.bytes);
      errors.by_size[std::max<std::ptrdiff_t>(above - kSizes, 1) - 1].add(seconds, call.seconds);
    }
    all.push_back(std::move(errors));
  }
  return all;
}

CallErrors total(const std::vector<CallErrors>& tables) {
  CallErrors all;
  for (const CallErrors& table : tables) {
    all.own.add(table.own);
    for (size_t i = 0; i < std::size(kSizes); ++i) all.by_size[i].add(table.by_size[i]);
  }
  return all;
}

}  // namespace zl
