// Values of RFC 3720, appendix B.4, and of the catalogue of CRCs (CRC-32/ISCSI).
#include "tensor/io/crc32c.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "tensor/error.h"

using namespace zl;

namespace {

uint32_t crc_of(const std::string& bytes) { return crc32c(std::as_bytes(std::span(bytes))); }

std::string random_text(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(n, ' ');
  for (char& c : bytes) c = char(random());
  return bytes;
}

}  // namespace

TEST_CASE("CRC-32C has the values of its specification", "[tensor]") {
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += char(i), down.insert(0, 1, char(i));
  CHECK(crc_of(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc_of(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(crc_of(up) == 0x46dd794e);
  CHECK(crc_of(down) == 0x113fdb5c);
  CHECK(crc_of("123456789") == 0xe3069283);
  CHECK(crc_of("") == 0);
  CHECK(crc_text(0x46dd794e) == "46dd794e");
  CHECK(crc_text(0x1) == "00000001");
}

TEST_CASE("bytes one by one have the checksum of all at once", "[tensor]") {
  const std::string bytes = random_text(1001, 1);
  uint32_t crc = 0;
  for (const char& c : bytes) crc = crc32c(std::as_bytes(std::span(&c, 1)), crc);
  CHECK(crc == crc_of(bytes));
}

TEST_CASE("a file has the checksum of its bytes", "[tensor]") {
  const std::string name =
      (std::filesystem::temp_directory_path() / str("zerolab-crc-", getpid())).string();
  for (const size_t n : {0, 9, 1 << 20, (3 << 20) + 7}) {
    const std::string bytes = random_text(n, n);
    std::ofstream(name, std::ios::binary) << bytes;
    CHECK(crc32c_of_file(name) == crc_of(bytes));
  }
  CHECK_THROWS_AS(crc32c_of_file(name, [] { throw std::runtime_error("Ctrl-C"); }),
                  std::runtime_error);
  std::filesystem::remove(name);
  CHECK_THROWS_AS(crc32c_of_file(name), InputError);
}

TEST_CASE("two checksums join to that of both ranges", "[tensor]") {
  const std::string bytes = random_text(100'003, 2);
  for (const size_t cut : {0, 1, 7, 8, 4096, 65'537, 100'002, 100'003}) {
    const std::string a = bytes.substr(0, cut), b = bytes.substr(cut);
    CHECK(crc32c_join(crc_of(a), crc_of(b), int64_t(b.size())) == crc_of(bytes));
  }
  // The twin: the order and the length matter.
  const std::string a = bytes.substr(0, 500), b = bytes.substr(500);
  CHECK(crc32c_join(crc_of(b), crc_of(a), 500) != crc_of(bytes));
  CHECK(crc32c_join(crc_of(a), crc_of(b), int64_t(b.size()) + 1) != crc_of(bytes));
}

TEST_CASE("every flipped bit changes the checksum", "[tensor]") {
  std::string bytes = random_text(300, 3);
  const uint32_t crc = crc_of(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= char(1 << bit % 8);
    CHECK(crc_of(bytes) != crc);
    bytes[bit / 8] ^= char(1 << bit % 8);
  }
}
