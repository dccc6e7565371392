// One call of a collective: what both sides of a mismatch are compared by, and what errors and
// reports name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dist/communication_log.h"
#include "tensor/dtype.h"

namespace zl {

enum class Reduction { sum, mean };
const char* name(Reduction reduction);

struct Call {
  Collective kind{};
  Dtype dtype = Dtype::f32;
  Reduction reduction = Reduction::sum;
  int peer = -1;         // root of a broadcast, other side of send and receive
  int64_t count = 0;     // [n] of the unsharded side
  int64_t sequence = 0;  // 1, 2, … among this rank's collectives (send and receive: among its own
                         // to or from this peer)
  std::string_view name;  // lives as long as the rank's event stream
  bool patient = false;   // it waits for the others however long they take

  bool operator==(const Call&) const = default;
  bool reduces() const {
    return kind == Collective::all_reduce || kind == Collective::reduce_scatter;
  }
  bool between_two() const { return kind == Collective::send || kind == Collective::receive; }
};

// "reduce_scatter 'h.1 gradient' of 96 f32 elements (call 17)", for people. With `reduction` it
// says sum or mean too.
std::string describe(const Call& call, bool reduction = false);

}  // namespace zl
