// How much memory the calling thread holds from operator new, counted where it is taken.
#pragma once

#include <cstdint>

namespace zl::exercises {

// [B] allocated minus [B] freed by this thread, so that a difference of two calls shows what was
// kept in between, if this thread frees what it allocates. Of ordinary operator new: std::vector,
// std::string and the like.
int64_t heap_live();
// Of operator new with an alignment: the segments of the library's tensors on the CPU. Independent
// of the ledger.
int64_t tensors_live();
// [B] of this thread's largest ordinary allocation since the last call of this function.
int64_t take_largest_allocation();

}  // namespace zl::exercises
