// All that calls MPI: its start in this process, and the messages of one call of a rank.
//
// Functions throw CommunicationError with MPI's message. None waits, except make_mpi_group(). One
// thread at a time may be inside MPI.
#pragma once

#include <functional>
#include <memory>

#include "dist/ordered/ordered_reduction.h"

namespace zl {

inline constexpr int64_t kMaxMessageBytes = int64_t(1) << 30;  // MPI counts in int

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

// Posts the messages of a call, of at most 1 GiB. A send is done when it is being received, so that
// none is left for MPI to move while this rank is not inside MPI. MPI keeps their order between two
// ranks, and a rank has one call at a time under way; the calls of each group have a tag. Ranks are
// those of the call's group.
class MpiMessages final : public ChunkTransport {
 public:
  MpiMessages(const RankGroup& group, int rank, int size);

  void send(const char* from, int64_t count, Dtype dtype, int to_rank) override;
  void receive(char* to, int64_t count, Dtype dtype, int from_rank) override;
  void all_gather(const char* from, char* to, int64_t count, Dtype dtype) override;

  // The sums of MPI in f32, f64 or i32, in place, on every rank.
  void add(char* inout, int64_t count, Dtype dtype);

  // Whether all have moved; they are forgotten then. Until then MPI uses the buffers, and cannot
  // withdraw the messages.
  bool done();

 private:
  struct Requests;  // of MPI

  const RankGroup group_;
  const int rank_, size_;
  const std::shared_ptr<Requests> requests_;
};

}  // namespace zl
