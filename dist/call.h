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

struct Call {
  Collective kind{};
  Dtype dtype = Dtype::f32;
  Reduction reduction = Reduction::sum;
  int peer = -1;         // root of a broadcast, other side of a send or receive
  int64_t count = 0;     // [n] of the unsharded side
  int64_t sequence = 0;  // 1, 2, … among this rank's collectives; of a send or receive: among those
                         // to or from this peer
  std::string_view name;     // lives as long as the rank's event stream
  bool has_deadline = true;  // false: it waits for the other ranks however long they take

  bool operator==(const Call&) const = default;
  bool reduces() const {
    return kind == Collective::all_reduce || kind == Collective::reduce_scatter;
  }
  bool point_to_point() const { return kind == Collective::send || kind == Collective::receive; }
};

// "reduce_scatter 'h.1 gradient' of 96 f32 elements (call 17)", for people. With `reduction` it
// says sum or mean too.
std::string describe(const Call& call, bool reduction = false);

}  // namespace zl
