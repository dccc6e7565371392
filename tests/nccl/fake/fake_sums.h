// What both fakes know of elements: how large they are, and how NCCL adds them.
#pragma once

#include <cstddef>
#include <vector>

#include "dist/nccl/api.h"

namespace zl::test {

size_t size_of_type(NcclType type);  // [B]

// Adds `count` elements of every term into `sums`, as a ring does: beginning with the second term
// and ending with the first, and rounded to the type at every step. `sums` may be one of the terms.
void add_around(const std::vector<const void*>& terms, size_t count, NcclType type, void* sums);

}  // namespace zl::test
