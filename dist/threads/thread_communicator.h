// Ranks that are threads of one process, on memory that all of them can read: that of the CPU, of
// one GPU that they share, or of several GPUs.
//
// A rank reads its peers' buffers directly, without a staging copy or a buffer as large as a
// tensor. The buffers of a call stay alive until every rank has left it
// (dist/threads/rendezvous.h).
#pragma once

#include "dist/communicator.h"
#include "dist/threads/rendezvous.h"

namespace zl {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, int size, Rendezvous& rendezvous, EventStream& events)
      : Communicator(rank, size, events), rendezvous_(rendezvous) {}

 private:
  ThreadCommunicator(ThreadCommunicator& all, const Split& split)
      : Communicator(all, split), rendezvous_(all.rendezvous_.group(split.group)) {}

  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override;
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override;
  Work do_all_gather(const Tensor& full, const Call& call) override;
  Work do_broadcast(const Tensor& inout, const Call& call) override;
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override;
  Work do_barrier(const Call& call) override;
  Work do_send(const Tensor& from, const Call& call) override { return point_to_point(from, call); }
  Work do_receive(const Tensor& to, const Call& call) override { return point_to_point(to, call); }
  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    return rendezvous_.all_gather_object(rank(), call, text, events());
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override;

  template <class Move>
  Work collective(const Tensor& from, const Tensor& to, const Call& call, Move move);
  Work point_to_point(const Tensor& tensor, const Call& call);

  Rendezvous& rendezvous_;  // of these ranks
};

}  // namespace zl
