// One call of a collective: what ranks compare to detect a mismatch, and what errors and reports
// name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dist/communication_log.h"
#include "tensor/dtype.h"

namespace zl {

enum class Reduction { sum, mean };
const char* name(Reduction reduction);

// How far a call has come: issued but not waited for, waiting for other ranks, moving data.
enum class CallState { posted, waiting, moving, done, failed };

// The ranks that a call is among: all of them, or those of one group (Communicator::split).
struct RankGroup {
  int number = 0;               // 1, 2, … in the order of the splits; 0: all ranks
  uint64_t ranks = 0;           // of a group: one bit for each of the first 64 ranks of the run
  std::string_view label = "";  // lives as long as the rank's event stream

  bool operator==(const RankGroup&) const = default;
  bool has(int rank_of_run) const { return number == 0 || (ranks >> rank_of_run & 1); }
  int of_run(int rank) const;  // the number in the run of a rank of the group
};

struct Call {
  Collective kind{};
  Dtype dtype = Dtype::f32;
  Reduction reduction = Reduction::sum;
  int peer = -1;             // root of a broadcast, other side of a send or receive; in its group
  int64_t count = 0;         // [n] of the unsharded side
  int64_t sequence = 0;      // 1, 2, … among this rank's collectives in the group; of a send or
                             // receive: among those to or from this peer
  std::string_view name;     // lives as long as the rank's event stream
  bool has_deadline = true;  // false: it waits for the other ranks however long they take
  RankGroup group = {};

  int peer_of_run() const { return group.of_run(peer); }
  bool operator==(const Call&) const = default;
  bool reduces() const {
    return kind == Collective::all_reduce || kind == Collective::reduce_scatter;
  }
  bool point_to_point() const { return kind == Collective::send || kind == Collective::receive; }
};

// "rank 2", "ranks 0, 1 and 3", of a mask with one bit per rank.
std::string ranks_text(uint64_t ranks);

// "reduce_scatter 'h.1 gradient' of 96 f32 elements (call 17)", for people; in a group "(call 17 of
// group 'intra', ranks 2 and 3)". With `reduction` it says sum or mean too.
std::string describe(const Call& call, bool reduction = false);

}  // namespace zl
