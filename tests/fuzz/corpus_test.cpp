// Runs the fuzz targets on their stored inputs, so that these are tested everywhere. With clang,
// fuzz_json and fuzz_safetensors start from these inputs and generate new ones.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/paths.h"

// Each target's LLVMFuzzerTestOneInput, by the name that tests/CMakeLists.txt gives it here.
extern "C" int fuzz_json(const uint8_t* bytes, size_t size);
extern "C" int fuzz_safetensors(const uint8_t* bytes, size_t size);

namespace {

void replay(const std::string& folder, int (*target)(const uint8_t*, size_t)) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(ZEROLAB_SOURCE_DIR) / "tests/fuzz/corpus" / folder)) {
    CAPTURE(entry.path());
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    const auto start = std::chrono::steady_clock::now();
    CHECK(target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) == 0);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    ++files;
  }
  CHECK(files >= 20);
}

}  // namespace

TEST_CASE("every stored JSON input is read or refused in time", "[fuzz]") {
  replay("json", fuzz_json);
}

TEST_CASE("every stored safetensors input is read or refused in time", "[fuzz]") {
  replay("safetensors", fuzz_safetensors);
}
