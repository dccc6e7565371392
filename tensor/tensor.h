// A tensor is a shape over a contiguous range of a storage. Copying one copies the handle, not the
// data.
#pragma once

#include <memory>
#include <span>

#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/memory.h"
#include "tensor/shape.h"

namespace zl {

// Owns one block of a Memory; its birth and death stand in the ledger.
class Storage {
 public:
  Storage(Memory& memory, MemoryUse use, int64_t bytes)
      : memory_(memory), use_(use), bytes_(bytes), data_(memory.allocate(use, bytes)) {}
  ~Storage() { memory_.release(data_, use_, bytes_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  Memory& memory() const { return memory_; }
  MemoryUse use() const { return use_; }
  void* data() const { return data_; }

 private:
  Memory& memory_;
  MemoryUse use_;
  int64_t bytes_;
  void* data_;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: what a released parameter looks like
  // Uninitialised. Throws OutOfMemory.
  static Tensor empty(Memory& memory, MemoryUse use, Shape shape, Dtype dtype = Dtype::f32);
  static Tensor zeros(Memory& memory, MemoryUse use, Shape shape, Dtype dtype = Dtype::f32);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const {
    return shape_.at(size_t(i < 0 ? int(shape_.size()) + i : i));
  }  // -1: the last
  int64_t numel() const { return numel_; }
  int64_t bytes() const { return numel_ * size_of(dtype_); }
  Dtype dtype() const { return dtype_; }
  Memory& memory() const { return storage_->memory(); }
  Backend& backend() const { return storage_->memory().backend(); }
  MemoryUse use() const { return storage_->use(); }
  // Whether nobody else holds this storage, so that it may be changed without anyone noticing.
  bool unique() const { return storage_.use_count() == 1; }
  bool same_storage(const Tensor& other) const { return storage_ == other.storage_; }

  // The elements, in host memory. Throws if T is not the dtype, or if the tensor is on meta or on a
  // GPU.
  template <class T>
  std::span<T> data() const {
    require(dtype_of<T> == dtype_, "data<", zl::name(dtype_of<T>), ">() of a tensor of ",
            zl::name(dtype_));
    return {static_cast<T*>(host_address()), size_t(numel_)};
  }
  // Address of the first element wherever it lies; null on meta. For backends.
  void* address() const {
    return storage_ && storage_->data()
               ? static_cast<char*>(storage_->data()) + offset_ * size_of(dtype_)
               : nullptr;
  }

  // Elements [begin, begin + numel(shape)), same storage.
  Tensor slice(int64_t begin, Shape shape) const;
  // The same elements in another shape.
  Tensor view(Shape shape) const { return slice(0, checked_view(std::move(shape))); }

 private:
  void* host_address() const;
  Shape checked_view(Shape shape) const;
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0, numel_ = 0;  // [n]
  Shape shape_;
  Dtype dtype_ = Dtype::f32;
};

// An uninitialised activation of another shape, beside `t` and of its dtype.
inline Tensor like(const Tensor& t, Shape shape) {
  return Tensor::empty(t.memory(), MemoryUse::activation, std::move(shape), t.dtype());
}

}  // namespace zl
