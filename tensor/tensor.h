// A tensor is a shape over a contiguous range of a storage. Copies share the storage.
#pragma once

#include <memory>
#include <span>

#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/memory.h"
#include "tensor/shape.h"

namespace zl {

// Owns one block of a Memory. The ledger counts it from construction to destruction.
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
  Tensor() = default;  // undefined: no storage
  // Uninitialised. Throws OutOfMemory.
  static Tensor empty(Memory& memory, MemoryUse use, Shape shape, Dtype dtype = Dtype::f32);
  static Tensor zeros(Memory& memory, MemoryUse use, Shape shape, Dtype dtype = Dtype::f32);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  // The size of dimension i; a negative i counts from the end, so -1 is the last.
  int64_t dim(int i) const;
  int64_t numel() const { return numel_; }
  int64_t rows() const { return dim(-1) ? numel_ / dim(-1) : 0; }  // leading dimensions together
  int64_t bytes() const { return numel_ * size_of(dtype_); }
  Dtype dtype() const { return dtype_; }
  Memory& memory() const { return storage_->memory(); }
  Backend& backend() const { return storage_->memory().backend(); }
  MemoryUse use() const { return storage_->use(); }
  // Whether this is the only handle to its storage, so that the data may be overwritten.
  bool unique() const { return storage_.use_count() == 1; }
  bool same_storage(const Tensor& other) const { return storage_ == other.storage_; }

  // The elements, in host memory. Throws std::invalid_argument if T is not the dtype, or if the
  // tensor is on meta, on a GPU or on disk.
  template <class T>
  std::span<T> data() const {
    if (dtype_of<T> != dtype_)
      refuse("data<", zl::name(dtype_of<T>), ">() of a tensor of ", zl::name(dtype_));
    return {static_cast<T*>(host_address()), size_t(numel_)};
  }
  // Where they begin, whatever their type; throws likewise.
  void* host_address() const;
  // The address of the first element in the device's memory. For backends.
  void* address() const {
    return storage_ && storage_->data()
               ? static_cast<char*>(storage_->data()) + offset_ * size_of(dtype_)
               : nullptr;
  }

  // Elements [begin, begin + numel(shape)) of the flat tensor, in the same storage.
  Tensor slice(int64_t begin, Shape shape) const;
  // The same elements in another shape.
  Tensor view(Shape shape) const;

 private:
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0, numel_ = 0;  // [n]
  Shape shape_;
  Dtype dtype_ = Dtype::f32;
};

// "(2, 3) f32": the shape and the type, for messages.
std::ostream& operator<<(std::ostream& out, const Tensor& t);

// Allocates an activation of shape `shape` in the memory and the dtype of `t`. Uninitialised.
inline Tensor activation_like(const Tensor& t, Shape shape) {
  return Tensor::empty(t.memory(), MemoryUse::activation, std::move(shape), t.dtype());
}

}  // namespace zl
