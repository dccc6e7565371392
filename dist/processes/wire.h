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

// As in
//   const std::string bytes = to_bytes(rank, name);
//   WireReader(bytes).read(rank, name);
//
// The bytes do not say what they are: they are read in the order and with the types in which they
// were written. A text is its size [8 B] and its characters; any other value, which has no
// pointers, is its bytes.
template <class T>
void append_bytes(std::string& bytes, const T& value) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    const std::string_view text = value;
    append_bytes(bytes, uint64_t(text.size()));
    bytes += text;
  } else {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
}
template <class... T>
std::string to_bytes(const T&... values) {
  std::string bytes;
  (append_bytes(bytes, values), ...);
  return bytes;
}

// The bytes must outlive it. Throws CommunicationError where they end too early.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    if constexpr (std::is_same_v<T, std::string>) {
      return T(next(get<uint64_t>()));
    } else {
      static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
      T value{};
      std::memcpy(&value, next(sizeof value).data(), sizeof value);
      return value;
    }
  }
  template <class... T>
  void read(T&... values) {
    ((values = get<T>()), ...);
  }
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
