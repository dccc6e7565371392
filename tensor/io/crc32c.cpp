#include "tensor/io/crc32c.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed: bit 31 is the coefficient of x^0
constexpr uint32_t kByte = 1u << 23;  // x^8: a byte behind a range multiplies its polynomial

// The product of two polynomials modulo the checksum's.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ (b & 1 ? kPolynomial : 0);  // times x
  }
  return product;
}

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) table[byte] = multiply(byte, kByte);
  return table;
}();

uint32_t by_table(std::span<const std::byte> bytes, uint32_t crc) {
  for (const std::byte b : bytes) crc = (crc >> 8) ^ kTable[(crc ^ uint32_t(b)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes,
                                                          uint32_t crc) {
  uint64_t eight = 0, sum = crc;
  for (; bytes.size() >= sizeof eight; bytes = bytes.subspan(sizeof eight)) {
    std::memcpy(&eight, bytes.data(), sizeof eight);
    sum = __builtin_ia32_crc32di(sum, eight);
  }
  return by_table(bytes, uint32_t(sum));
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(bytes, ~before);
#endif
  return ~by_table(bytes, ~before);
}

uint32_t crc32c_of_file(const std::string& path, const std::function<void()>& poll) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> chunk(1 << 20);
  uint32_t crc = 0;
  for (; file.read(chunk.data(), int64_t(chunk.size())).gcount() > 0; poll())
    crc = crc32c(std::as_bytes(std::span(chunk).first(size_t(file.gcount()))), crc);
  require_input(file.eof() && !file.bad(), "'", path, "' cannot be read");
  return crc;
}

// By repeated squaring.
uint32_t crc32c_join(uint32_t first, uint32_t second, int64_t bytes_of_second) {
  uint32_t power = kByte;
  for (int64_t n = bytes_of_second; n != 0; n >>= 1, power = multiply(power, power))
    if (n & 1) first = multiply(power, first);
  return first ^ second;
}

std::string crc_text(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

}  // namespace zl
