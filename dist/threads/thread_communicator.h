// Ranks as threads of one process, on memory that every one of them can read: the CPU's, one GPU's
// that they share, or that of several GPUs.
//
// A rank reads its peers' buffers directly: no staging copy, no buffer of the size of a tensor. All
// buffers of a call stay where they are until every rank has left it (dist/threads/rendezvous.h).
#pragma once

#include "dist/communicator.h"
#include "dist/threads/rendezvous.h"

namespace zl {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, int size, Meeting& meeting, EventStream& events)
      : Communicator(rank, size, events), meeting_(meeting) {}

 private:
  Work do_all_reduce(const Tensor& inout, const Call& call) override;
  Work do_reduce_scatter(const Tensor& whole, const Call& call) override;
  Work do_all_gather(const Tensor& whole, const Call& call) override;
  Work do_broadcast(const Tensor& inout, const Call& call) override;
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override;
  Work do_barrier(const Call& call) override;
  Work do_send(const Tensor& from, const Call& call) override { return mail(from, call); }
  Work do_receive(const Tensor& to, const Call& call) override { return mail(to, call); }
  std::vector<std::string> do_exchange(const std::string& text, const Call& call) override {
    return meeting_.exchange(rank(), call, text, events());
  }

  template <class Move>
  Work meet(const Tensor& from, const Tensor& to, const Call& call, Move move);
  Work mail(const Tensor& tensor, const Call& call);

  Meeting& meeting_;
};

}  // namespace zl
