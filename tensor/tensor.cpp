#include "tensor/tensor.h"

#include "tensor/kernels.h"

namespace zl {

Tensor Tensor::empty(Memory& memory, MemoryUse use, Shape shape, Dtype dtype) {
  for (int64_t d : shape) require(d >= 0, "a tensor cannot have shape ", to_string(shape));
  Tensor t;
  t.numel_ = zl::numel(shape);
  t.storage_ = std::make_shared<Storage>(memory, use, t.numel_ * size_of(dtype));
  t.shape_ = std::move(shape);
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::zeros(Memory& memory, MemoryUse use, Shape shape, Dtype dtype) {
  Tensor t = empty(memory, use, std::move(shape), dtype);
  kernel::fill(0, t);
  return t;
}

Tensor Tensor::slice(int64_t begin, Shape shape) const {
  const int64_t n = zl::numel(shape);
  require(defined(), "slice of an undefined tensor");
  for (const int64_t d : shape) require(d >= 0, "a slice cannot have shape ", to_string(shape));
  require(begin >= 0 && begin <= numel_ && n <= numel_ - begin, "a slice of ", n, " elements from ",
          begin, " lies outside a tensor of ", numel_, " elements");
  Tensor t = *this;
  t.offset_ += begin;
  t.numel_ = n;
  t.shape_ = std::move(shape);
  return t;
}

Shape Tensor::checked_view(Shape shape) const {
  require(zl::numel(shape) == numel_, "a tensor of shape ", to_string(shape_),
          " cannot be viewed as ", to_string(shape));
  return shape;
}

void* Tensor::host_address() const {
  require(defined(), "data() of an undefined tensor");
  const Backend& b = backend();
  require(b.holds_data() && b.host_addressable(), "the host cannot read a tensor on ", b.name());
  return address();
}

}  // namespace zl
