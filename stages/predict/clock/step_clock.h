// The clock: reads the events of one rank's dry run, and says when each of them would happen on a
// machine.
//
// Three lanes. The host launches kernels and calls, in program order. The compute stream runs the
// kernels. Each communicator runs its calls in the order of their issue (CallsInFlight). A
// kernel begins when it is launched, the kernel before has ended, and every call that the program
// has waited for has ended. A call begins when it is issued, everything before it on the compute
// stream is done, and the call before it on its communicator has ended. The host waits for the
// device once in a step: before the first update, which needs the gradient norm.
//
// On a CPU the host and the compute stream are one thread: it launches a kernel when the kernel
// before has ended. Unless other threads carry out the calls, it also waits for each call at once.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stages/predict/clock/collective_time.h"
#include "stages/predict/clock/kernel_time.h"
#include "tensor/events.h"

namespace zl {

// Collectives in flight on the links of one node: which of them runs when, and how fast.
//
// Calls of one communicator run one after another, in the order in which they are issued. Calls of
// several communicators run at the same time, and those that use the same link divide its
// bandwidth.
class CallsInFlight {
 public:
  enum class Link { node, network };
  struct Call {
    std::string communicator;  // the label of its group; "": all ranks
    std::string what, unit;    // as its event says
    double latency = 0;        // [s] which no other call makes longer
    double transfer = 0;       // [s] with the link for itself
    Link link = Link::node;
  };
  struct Span {
    int64_t number = 0;
    Call call;                   // until it has ended its latency and transfer are what is left
    double begin = -1, end = 0;  // [s]; begin < 0: it waits behind another call
  };

  // Returns the call's number, from 0. `at` [s] must not be earlier than that of the call before.
  int64_t issue(Call call, double at);
  // [s] When the call ends, if no other call is issued.
  double end_of(int64_t number) const;
  // [s] When the last call ends.
  double end_of_all() const;
  // [s] In which at least one call runs, until then.
  double busy_until(double end) const;
  // Of calls that ended before the last issue, and of the others as they will end.
  std::vector<Span> spans() const;

 private:
  // The calls at one time.
  struct Queues {
    double now = 0;
    std::map<std::string, std::deque<Span>> of;

    // Until `until`, or until no call is left.
    void advance(double until, const std::function<void(const Span&)>& ended);
  };

  std::vector<Span> later() const;  // calls that have not ended, as they will

  Queues queues_;
  std::vector<Span> ended_;
  int64_t issued_ = 0;
};

struct ClockOptions {
  int ranks = 1;
  int ranks_in_group = 0;  // of the groups "intra", which are consecutive ranks; 0: no groups
  Dtype type = Dtype::f32;
  int head = 0, rows = 0;       // as in KernelWork
  bool calls_in_flight = true;  // false: the program waits for each call when it is issued
  double slowdown = 1;          // a kernel takes so many times as long as the machine says
};

// [s] Of a part of the run. seconds = compute + exposed: `compute` is the time in which the compute
// stream runs kernels or waits for the host to launch them, `exposed` the time in which it does
// nothing but wait for calls. `communication` is the time in which a call runs.
struct ClockTimes {
  double seconds = 0, compute = 0, launches = 0, communication = 0, exposed = 0;
  ClockTimes plus(const ClockTimes& other, double times) const;
  ClockTimes operator-(const ClockTimes& other) const { return plus(other, -1); }
};

// What ran on a lane: a kernel on "compute", a call on "calls" or on that of its group.
struct ClockSpan {
  std::string lane, what, unit;
  double begin = 0, end = 0;  // [s]
};

class StepClock {
 public:
  StepClock(const Machine& machine, const ClockOptions& options)
      : machine_(machine), options_(options) {}

  void see(const Event& event);  // a listener of the rank's stream
  // After the last step: its end, as the begin of a next step would be. The phase "report" does
  // this too. What is waited for later, such as updated parameters, belongs to the next step.
  void finish();

  // A step of `micro_batches`, from the last step that the clock saw: if the step has more than the
  // dry run makes, the one in the middle is repeated.
  ClockTimes step(int64_t micro_batches) const;
  // Of the last step, from its begin.
  std::vector<ClockSpan> spans() const;
  // [s] of the last step's kernels by name, and of its calls by collective, each by itself.
  const std::map<std::string, double>& kernels() const { return kernels_; }
  const std::map<std::string, double>& calls() const { return calls_; }

 private:
  struct Issued {
    std::string name;
    int64_t number = -1;  // in flight; -1: not issued yet
    CallsInFlight::Call call;
  };

  void see_phase(const Event& event);
  void see_kernel(const Event& event);
  void see_move(const Event& event);
  void see_call(const Event& event);
  void issue_met();
  void launch();
  void run(const char* what, const char* unit, double seconds, bool launched);
  double slowed(double begin, double seconds) const;
  ClockTimes now() const;
  double device_time() const { return std::max(compute_, waited_); }

  const Machine& machine_;
  const ClockOptions options_;
  CallsInFlight in_flight_;
  std::vector<Issued> calls_open_;  // begun and not ended, in program order
  std::vector<size_t> met_;         // of calls_open_: they will be issued together
  double host_ = 0, compute_ = 0;   // [s] until when these lanes are busy
  double waited_ = 0;               // [s] the end of the calls that the program has waited for
  double launches_ = 0, exposed_ = 0;
  bool after_step_ = true, updates_ = false, finished_ = false;
  std::vector<ClockTimes> marks_;  // at the begin of each micro-batch of the step, and at its end
  std::vector<ClockSpan> kernels_of_step_;
  std::map<std::string, double> kernels_, calls_;
};

}  // namespace zl
