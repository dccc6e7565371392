// All that calls MPI: its start in this process, and the messages that one call of a rank has under
// way.
//
// Functions throw CommunicationError with MPI's message. None waits, except make_mpi_group(). One
// thread at a time may be inside MPI.
#pragma once

#include <functional>
#include <memory>

#include "dist/ordered/ordered_reduction.h"

namespace zl {

inline constexpr int64_t kMaxMessageBytes = int64_t(1) << 30;  // MPI counts in int

// The function of MPI that this process is in, for reports; null: none.
const char* inside_mpi();

struct MpiPlace {
  int rank = -1, size = 0;
};

// Starts MPI if no run of this process has, and says what it counts. MPI may wait for the other
// ranks, so a separate thread calls MPI_Init_thread and, as the standard requires, MPI_Finalize.
// Meanwhile calls `poll` again and again, which throws to give up; then MPI may be started later.
MpiPlace start_mpi(const std::function<void()>& poll);

// Makes the communicators in which MPI adds for the groups of a split, of which this rank has one.
// All ranks of the run call it, each with its group, and it waits for all of them.
void make_mpi_group(const RankGroup& group);

// Posts the messages of a call, of at most 1 GiB, all with one tag: MPI keeps their order between
// two ranks. Ranks are those of the call's group.
class MpiMessages final : public ChunkTransport {
 public:
  MpiMessages(const Call& call, int rank, int size);

  void send(const char* from, int64_t count, Dtype dtype, int to_rank) override;
  void receive(char* to, int64_t count, Dtype dtype, int from_rank) override;
  void all_gather(const char* from, char* to, int64_t count, Dtype dtype) override;

  // The sums of MPI for an all_reduce or reduce_scatter in f32, f64 or i32, in place. That of a
  // reduce_scatter is where the buffer begins, and `count` [n] is of a shard, of at most 1 GiB.
  void add(Collective kind, char* inout, int64_t count, Dtype dtype);

  // Whether all have moved; they are forgotten then. Until then MPI uses the buffers, and cannot
  // withdraw the messages. Moves data, of other messages too.
  bool done();

 private:
  struct Requests;  // of MPI

  const RankGroup group_;
  const int rank_, size_, tag_;
  const std::shared_ptr<Requests> requests_;
};

}  // namespace zl
