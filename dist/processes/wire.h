// Values as bytes, one after the other, for all_gather_object(). All ranks run the same program on
// the same kind of machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "dist/communicator.h"

namespace zl {

// The bytes do not say what they are: they are read in the order and with the types in which they
// were written.
class WireWriter {
 public:
  // The bytes of a value without pointers.
  template <class T>
  WireWriter& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  // Its size [8 B], then its characters.
  WireWriter& text(std::string_view value) {
    put(uint64_t(value.size()));
    bytes_.append(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// The bytes must outlive it. Throws CommunicationError where they end too early.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    T value{};
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(next(get<uint64_t>())); }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view next(uint64_t size) {
    if (size > bytes_.size())
      throw CommunicationError(
          "a message of another rank ends too early; do all ranks run the same program?");
    const std::string_view piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }

  std::string_view bytes_;
};

}  // namespace zl
