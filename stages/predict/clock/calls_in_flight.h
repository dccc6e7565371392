// Collectives in flight on the links of one node: which of them runs when, and how fast.
//
// Calls of one communicator run one after another, in the order in which they are issued. Calls of
// several communicators run at the same time, and those that use the same link divide its
// bandwidth.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace zl {

class CallsInFlight {
 public:
  enum class Link { node, network };
  struct Call {
    std::string communicator;  // the label of its group; "": all ranks
    double latency = 0;        // [s] which no other call makes longer
    double transfer = 0;       // [s] with the link for itself
    Link link = Link::node;
  };
  struct Span {
    int64_t number = 0;
    double begin = 0, end = 0;
  };

  // Returns the call's number, from 0. `at` [s] must not be earlier than that of the call before.
  int64_t issue(Call call, double at);
  // [s] When the call ends, if no other call is issued.
  double end_of(int64_t number) const;
  // [s] When the last call ends.
  double end_of_all() const;
  // [s] In which at least one call runs, between the two times.
  double busy_between(double begin, double end) const;
  // Of calls that ended before the last issue, and of the others as they will end.
  std::vector<Span> spans() const;

 private:
  struct Running {
    int64_t number;
    Call call;          // its latency and transfer are what is left
    double begin = -1;  // [s]; -1: it waits behind another call
  };
  // The calls at one time.
  struct Queues {
    double now = 0;
    std::map<std::string, std::deque<Running>> of;

    // Until `until`, or until no call is left.
    void advance(double until, const std::function<void(const Span&)>& ended);
  };

  Queues queues_;
  std::vector<Span> ended_;
  int64_t issued_ = 0;
};

}  // namespace zl
