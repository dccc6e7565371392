// Any bytes as a file of weights either open with every tensor readable, or give an InputError. A
// crash, a hang or another exception ends the fuzzer.

#include <cstdlib>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tensor/io/safetensors.h"
#include "tests/fuzz/memory_file.h"

namespace {

void read_all(const zl::SafetensorsFile& file, int64_t size) {
  int64_t covered = 0;
  for (const zl::SafetensorsEntry& entry : file.entries()) {
    if (entry.bytes() < 0 || entry.bytes() > size || file.find(entry.name) != &entry) std::abort();
    covered += entry.bytes();
    std::vector<std::byte> bytes(size_t(entry.bytes()));
    file.read_bytes(entry.name, 0, bytes);
    try {
      const bool whole = int64_t(file.read_floats(entry.name).size()) == entry.numel();
      if (!whole) std::abort();
    } catch (const zl::InputError&) {
      const std::string_view type = entry.dtype;
      if (type == "F32" || type == "F16" || type == "BF16" || type == "F64") std::abort();
    }
  }
  if (covered > size) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const zl::test::MemoryFile memory(bytes, size);
  try {
    read_all(zl::SafetensorsFile(memory.path()), int64_t(size));
  } catch (const zl::InputError&) {
  }
  return 0;
}
