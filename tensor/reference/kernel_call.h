// What the calls of kernels (tensor/kernels.h) have in common. In the files of this folder each
// call is followed by its kernel: what fits, what it costs, what it computes. A kernel runs on
// the backend of its output, a transfer on that of the tensor on the device; either may be another
// one than the reference.
#pragma once

#include <initializer_list>
#include <vector>

#include "tensor/kernels.h"

namespace zl::kernel {

// Appends the event of one kernel: its floating-point operations, and the bytes of the tensors that
// it must read or write at least once. Returns the backend that runs it.
inline Backend& recorded(const char* what, const Tensor& out, int64_t operations,
                         std::initializer_list<const Tensor*> touched) {
  int64_t bytes = 0;
  for (const Tensor* t : touched) bytes += t->bytes();
  out.memory().append_kernel(what, bytes, operations);
  return out.backend();
}

// The kernel's workspace, in the memory of `out`; undefined if it needs none.
inline Tensor workspace(KernelId kernel, const std::vector<int64_t>& dims, const Tensor& out) {
  const int64_t bytes = out.backend().workspace(kernel, dims, out.dtype());
  if (bytes == 0) return {};
  return Tensor::empty(out.memory(), MemoryUse::workspace, {(bytes + 3) / 4}, Dtype::f32);
}

// The others have as many elements as `a`, of the same type. Throws std::invalid_argument, as those
// below; `what` is the kernel.
inline void require_same(const char* what, const Tensor& a,
                         std::initializer_list<const Tensor*> others) {
  for (const Tensor* b : others)
    if (a.numel() != b->numel() || a.dtype() != b->dtype())
      refuse(what, ": ", a, " does not match ", *b);
}

// `t`, which the message calls `which`, has n elements of this type.
inline void require_is(const char* what, const char* which, const Tensor& t, int64_t n,
                       Dtype type) {
  if (t.numel() != n || t.dtype() != type)
    refuse(what, ": ", which, " must be ", n, " elements of ", name(type), ", not ", t);
}

inline void require_ids(const char* what, const Tensor& ids) {
  if (ids.dtype() != Dtype::i32) refuse(what, ": token ids must be i32, not ", name(ids.dtype()));
}

}  // namespace zl::kernel
