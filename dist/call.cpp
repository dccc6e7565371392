#include "dist/call.h"

#include <bit>

#include "tensor/error.h"

namespace zl {

const char* name(Reduction reduction) { return reduction == Reduction::sum ? "sum" : "mean"; }

int RankGroup::of_run(int rank) const {
  if (number == 0 || rank < 0) return rank;
  uint64_t left = ranks;
  for (; rank > 0; --rank) left &= left - 1;
  return std::countr_zero(left);
}

std::string ranks_text(uint64_t ranks) {
  std::string text = std::popcount(ranks) == 1 ? "rank " : "ranks ";
  for (int left = std::popcount(ranks); ranks; ranks &= ranks - 1, --left)
    text += str(std::countr_zero(ranks), left > 2 ? ", " : left == 2 ? " and " : "");
  return text;
}

std::string describe(const Call& call, bool reduction) {
  std::string text = str(name(call.kind), " '", call.name, "'");
  if (call.kind != Collective::barrier)
    text +=
        str(" of ", call.count, " ", name(call.dtype), call.count == 1 ? " element" : " elements");
  if (reduction && call.reduces()) text += str(", ", name(call.reduction));
  if (call.kind == Collective::send) text += str(" to rank ", call.peer_of_run());
  if (call.kind == Collective::receive || call.kind == Collective::broadcast)
    text += str(" from rank ", call.peer_of_run());
  text += str(" (call ", call.sequence);
  if (call.group.number > 0)
    text += str(" of group '", call.group.label, "', ", ranks_text(call.group.ranks));
  return text + ")";
}

}  // namespace zl
