#include "stages/predict/clock/calls_in_flight.h"

#include <algorithm>
#include <limits>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

}  // namespace

// The first call of each queue runs: first its latency, then its transfer, at 1/n of the link's
// bandwidth while n calls transfer on that link.
void CallsInFlight::Queues::advance(double until, const std::function<void(const Span&)>& ended) {
  while (!of.empty() && now < until) {
    int transferring[2] = {};
    for (auto& [communicator, queue] : of) {
      Running& head = queue.front();
      if (head.begin < 0) head.begin = now;
      if (head.call.latency <= 0) ++transferring[int(head.call.link)];
    }
    const auto slowed = [&](const Running& r) { return double(transferring[int(r.call.link)]); };
    double next = until - now;  // [s] until something changes
    for (const auto& [communicator, queue] : of) {
      const Running& r = queue.front();
      next = std::min(next, r.call.latency > 0 ? r.call.latency : r.call.transfer * slowed(r));
    }
    now = next == kForever ? now : now + next;
    for (auto queue = of.begin(); queue != of.end();) {
      Running& r = queue->second.front();
      // What is left after a step that was as long as the rest is rounding.
      const double tiny = 1e-12 * next;
      const bool first = r.call.latency > 0;
      double& left = first ? r.call.latency : r.call.transfer;
      left -= first ? next : next / slowed(r);
      if (left <= tiny) left = 0;
      if (r.call.latency > 0 || r.call.transfer > 0) {
        ++queue;
        continue;
      }
      ended({r.number, r.begin, now});
      queue->second.pop_front();
      queue = queue->second.empty() ? of.erase(queue) : std::next(queue);
    }
  }
  if (of.empty() && until != kForever) now = std::max(now, until);
}

int64_t CallsInFlight::issue(Call call, double at) {
  require(at >= queues_.now, "a call is issued at ", at, " s, before ", queues_.now, " s");
  queues_.advance(at, [this](const Span& span) { ended_.push_back(span); });
  queues_.now = at;
  const std::string communicator = call.communicator;
  queues_.of[communicator].push_back({issued_, std::move(call)});
  return issued_++;
}

double CallsInFlight::end_of(int64_t number) const {
  const auto found = std::find_if(ended_.rbegin(), ended_.rend(),
                                  [&](const Span& span) { return span.number == number; });
  if (found != ended_.rend()) return found->end;
  Queues later = queues_;
  double end = 0;
  later.advance(kForever, [&](const Span& span) {
    if (span.number == number) end = span.end;
  });
  return end;
}

double CallsInFlight::end_of_all() const {
  double end = ended_.empty() ? 0 : ended_.back().end;
  Queues later = queues_;
  later.advance(kForever, [&](const Span& span) { end = span.end; });
  return end;
}

double CallsInFlight::busy_between(double begin, double end) const {
  std::vector<Span> all = spans();
  std::ranges::sort(all, {}, &Span::begin);
  double busy = 0, until = begin;
  for (const Span& span : all) {
    const double from = std::max(span.begin, until), to = std::min(span.end, end);
    if (to > from) busy += to - from;
    until = std::max(until, to);
  }
  return busy;
}

std::vector<CallsInFlight::Span> CallsInFlight::spans() const {
  std::vector<Span> all = ended_;
  Queues later = queues_;
  later.advance(kForever, [&](const Span& span) { all.push_back(span); });
  return all;
}

}  // namespace zl
