// The event of a kernel.
#pragma once

#include "tensor/memory.h"

namespace zl {

// A kernel that writes into `out`: its floating-point operations, and the bytes that it reads and
// writes. The event's detail is the pool of `out`: "" on the device.
inline void append_kernel(Memory& out, const char* what, int64_t bytes, int64_t operations = 0) {
  out.events().append(EventKind::kernel, what, bytes, operations,
                      out.pool() == Pool::device ? "" : name(out.pool()));
}

}  // namespace zl
