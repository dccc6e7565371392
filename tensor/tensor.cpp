#include "tensor/tensor.h"

#include "tensor/kernels.h"

namespace zl {

namespace {
int64_t checked_numel(const Shape& shape) {
  for (const int64_t d : shape)
    if (d < 0) refuse("a tensor cannot have shape ", to_string(shape));
  return numel(shape);
}
}  // namespace

Tensor Tensor::empty(Memory& memory, MemoryUse use, Shape shape, Dtype dtype) {
  Tensor t;
  t.numel_ = checked_numel(shape);
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

int64_t Tensor::dim(int i) const {
  const int dims = int(shape_.size()), from_start = i < 0 ? dims + i : i;
  if (from_start < 0 || from_start >= dims)
    refuse("dimension ", i, " is out of range for shape ", to_string(shape_));
  return shape_[size_t(from_start)];
}

Tensor Tensor::slice(int64_t begin, Shape shape) const {
  if (!defined()) refuse("slice of an undefined tensor");
  const int64_t n = checked_numel(shape);
  if (begin < 0 || begin > numel_ || n > numel_ - begin)
    refuse("a slice of ", n, " elements from ", begin, " is out of range for a tensor of ", numel_,
           " elements");
  Tensor t = *this;
  t.offset_ += begin;
  t.numel_ = n;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::view(Shape shape) const {
  if (zl::numel(shape) != numel_)
    refuse("a tensor of shape ", to_string(shape_), " cannot be viewed as ", to_string(shape));
  return slice(0, std::move(shape));
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  return out << to_string(t.shape()) << ' ' << name(t.dtype());
}

void* Tensor::host_address() const {
  if (!defined()) refuse("data() of an undefined tensor");
  const Backend& b = backend();
  if (!b.holds_data() || !b.host_addressable())
    refuse("the host cannot read a tensor on ", b.name());
  return address();
}

}  // namespace zl
