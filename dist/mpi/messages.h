// The messages that one call of a rank has under way in MPI.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "dist/mpi/api.h"
#include "dist/ordered/ordered_reduction.h"

namespace zl {

// A rank's way into MPI, for its communicator and the groups of it.
class MpiCalls {
 public:
  MpiCalls(const MpiApi& api, std::atomic<const char*>& inside) : api(api), inside_(inside) {}
  // Calls one function of MPI. Throws CommunicationError with MPI's message, or if the rank has
  // left.
  void take(const char* function, const std::function<const char*()>& ask) const;

  const MpiApi& api;
  bool left = false;  // after a failure: MPI is not called again

 private:
  std::atomic<const char*>& inside_;  // the function that the rank is in, for reports; null: none
};

// Posts messages of at most 1 GiB, all with one tag: MPI keeps their order between two ranks.
// Functions throw as MpiCalls::take(). Ranks are those of a group, whose members are ranks of MPI.
class MpiMessages final : public ChunkTransport {
 public:
  MpiMessages(const MpiCalls& calls, const std::vector<int>& members, int rank, int tag)
      : calls_(calls), members_(members), rank_(rank), tag_(tag) {}

  void send(const char* from, int64_t count, Dtype dtype, int to_rank) override;
  void receive(char* to, int64_t count, Dtype dtype, int from_rank) override;
  void all_gather(const char* from, char* to, int64_t count, Dtype dtype) override;

  // The sums of MPI among the ranks of a group, as in dist/mpi/api.h. The first takes any count.
  void all_reduce(char* inout, int64_t count, MpiType type, int group);
  void reduce_scatter(char* inout, int64_t count, MpiType type, int group);

  bool done();  // whether all have moved; they are forgotten then. Until then MPI uses the buffers

 private:
  template <class Post>
  void in_rounds(int64_t bytes, const Post& post);

  const MpiCalls& calls_;
  const std::vector<int>& members_;
  const int rank_, tag_;
  std::vector<MpiRequest> requests_;
};

}  // namespace zl
