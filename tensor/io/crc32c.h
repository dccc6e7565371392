// CRC-32C, the checksum of iSCSI and of many file systems: Castagnoli's polynomial 0x1EDC6F41, as
// in RFC 3720, appendix B.4. It finds every error of up to 32 neighbouring bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace zl {

// The checksum of `bytes`; `before` is that of the bytes in front of them.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// That of a file's bytes. Throws InputError if it cannot be read. `poll` is called for each MiB,
// and may throw.
uint32_t crc32c_of_file(
    const std::string& path, const std::function<void()>& poll = [] {});

// The checksum of two ranges of bytes, one behind the other, from theirs alone.
uint32_t crc32c_join(uint32_t first, uint32_t second, int64_t bytes_of_second);

// As files show it: "1a2b3c4d".
std::string crc_text(uint32_t crc);

}  // namespace zl
