// Reads TensorBoard's event files, from the documents of their formats: TFRecord frames with
// checksums bit by bit, and the fields of Event and Summary on protobuf's wire.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zl::test {

struct Scalar {
  double seconds = 0;
  int64_t step = 0;
  std::string version, tag;  // one of them is empty
  float value = 0;
};

namespace event_file {

struct Reader {
  std::string_view bytes;

  std::string_view take(uint64_t n) {
    if (n > bytes.size()) throw std::runtime_error("cut off");
    const std::string_view taken = bytes.substr(0, n);
    bytes.remove_prefix(n);
    return taken;
  }
  template <class T>
  T fixed() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = fixed<uint8_t>();
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
};

// RFC 3720, appendix B.4, one bit at a time; masked as in TensorFlow's lib/hash/crc32c.h.
inline uint32_t masked_crc(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= uint8_t(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

inline std::string_view checked(Reader& file, uint64_t n) {
  const std::string_view bytes = file.take(n);
  if (file.fixed<uint32_t>() != masked_crc(bytes)) throw std::runtime_error("wrong checksum");
  return bytes;
}

inline void read_value(Reader value, Scalar& scalar) {
  while (!value.bytes.empty()) switch (value.varint()) {
      case 1 << 3 | 2: scalar.tag = value.take(value.varint()); break;
      case 2 << 3 | 5: scalar.value = value.fixed<float>(); break;
      default: throw std::runtime_error("a field of Summary.Value that is not expected");
    }
}

inline void read_summary(Reader summary, Scalar& scalar) {
  while (!summary.bytes.empty()) {
    if (summary.varint() != (1 << 3 | 2)) throw std::runtime_error("no Summary.Value");
    read_value({summary.take(summary.varint())}, scalar);
  }
}

inline Scalar read_event(Reader event) {
  Scalar scalar;
  while (!event.bytes.empty()) switch (event.varint()) {
      case 1 << 3 | 1: scalar.seconds = event.fixed<double>(); break;
      case 2 << 3 | 0: scalar.step = int64_t(event.varint()); break;
      case 3 << 3 | 2: scalar.version = event.take(event.varint()); break;
      case 5 << 3 | 2: read_summary({event.take(event.varint())}, scalar); break;
      default: throw std::runtime_error("a field of Event that is not expected");
    }
  return scalar;
}

}  // namespace event_file

// Throws std::runtime_error if a frame is cut off or a checksum is wrong.
inline std::vector<Scalar> read_event_file(std::string_view bytes) {
  using namespace event_file;
  Reader file{bytes};
  std::vector<Scalar> all;
  while (!file.bytes.empty()) {
    Reader length{checked(file, 8)};
    all.push_back(read_event({checked(file, length.fixed<uint64_t>())}));
  }
  return all;
}

}  // namespace zl::test
