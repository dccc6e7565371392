// The communicator of one rank of an explored run: its calls are issued, and wait to be waited for.
#pragma once

#include "dist/communicator.h"
#include "tests/stages/explored/explored_ranks.h"

namespace zl::test {

class ExploredCommunicator final : public Communicator {
 public:
  ExploredCommunicator(int rank, int size, EventStream& events, ExploredRanks& ranks)
      : Communicator(rank, size, events), ranks_(ranks) {}

  void begin_group() override { in_group_ = true, ++group_; }
  void end_group() override { in_group_ = false; }

 private:
  Work issue(const Tensor& from, const Tensor& to, const Tensor& start, const Call& call);
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return issue(inout, inout, start, call);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return issue(full, full, start, call);
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    return issue(full, full, {}, call);
  }
  Work do_broadcast(const Tensor& inout, const Call& call) override {
    return issue(inout, inout, {}, call);
  }
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override {
    return issue(from, to, {}, call);
  }
  Work do_barrier(const Call& call) override { return issue({}, {}, {}, call); }
  Work do_send(const Tensor&, const Call& call) override { return refuse(call); }
  Work do_receive(const Tensor&, const Call& call) override { return refuse(call); }
  std::vector<std::string> do_all_gather_object(const std::string& text, const Call& call) override;
  // A send is at the head of two lanes only, and no stage sends.
  [[noreturn]] Work refuse(const Call& call) const;

  ExploredRanks& ranks_;
  bool in_group_ = false;
  int group_ = 0;
};

}  // namespace zl::test
