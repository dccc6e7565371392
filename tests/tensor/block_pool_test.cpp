// The pool on a system whose memory is one array: segments have neighbours, and few fit.
#include "tensor/block_pool.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "tensor/cpu/cpu_backend.h"

namespace {

using namespace zl;

constexpr int64_t kSegment = 1 << 20;

// Gives out parts of the array from its lower or its upper end, and no part twice.
class ArraySystem final : public CpuBackend {
 public:
  explicit ArraySystem(int64_t capacity = 64 * kSegment, bool upwards = true)
      : capacity_(capacity), upwards_(upwards) {}
  ~ArraySystem() override { ::operator delete(array_, std::align_val_t(256)); }

  int64_t segment() const override { return kSegment; }
  void* allocate(int64_t bytes) override {
    if (bytes > capacity_ - taken_ || bytes > kArray - given_) return nullptr;
    char* const segment = array_ + (upwards_ ? given_ : kArray - given_ - bytes);
    given_ += bytes;
    taken_ += bytes;
    segments[segment] = bytes;
    return segment;
  }
  void release(void* segment, int64_t bytes) noexcept override {
    const auto found = segments.find(static_cast<char*>(segment));
    if (found == segments.end() || found->second != bytes) return void(wrong_release = true);
    taken_ -= bytes;
    segments.erase(found);
  }

  std::map<char*, int64_t> segments;  // [B]
  bool wrong_release = false;

 private:
  static constexpr int64_t kArray = 256 * kSegment;
  char* array_ = static_cast<char*>(::operator new(size_t(kArray), std::align_val_t(256)));
  int64_t capacity_, given_ = 0, taken_ = 0;
  bool upwards_;
};

struct Fixture {
  ArraySystem system;
  BlockPool pool{system};
  explicit Fixture(int64_t capacity = 64 * kSegment, bool upwards = true)
      : system(capacity, upwards) {}
  char* allocate(int64_t bytes) { return static_cast<char*>(pool.allocate(bytes)); }
  void release(void* block) { pool.release(block, 0); }
};

TEST_CASE("one segment serves many blocks, aligned to 256 bytes and side by side", "[tensor]") {
  Fixture f;
  char* const a = f.allocate(1);
  char* const b = f.allocate(1000);
  char* const c = f.allocate(257);
  CHECK((f.pool.system_calls() == 1 && f.system.segments.begin()->second == kSegment));
  CHECK((uintptr_t(a) % 256 == 0 && b == a + 256 && c == b + 1024));
}

TEST_CASE("released blocks merge with their neighbours, in any order", "[tensor]") {
  Fixture f;
  const int64_t quarter = kSegment / 4;
  for (const std::array<size_t, 3> order :
       {std::array<size_t, 3>{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}}) {
    const std::array blocks{f.allocate(quarter), f.allocate(quarter), f.allocate(quarter)};
    for (const size_t i : order) f.release(blocks[i]);
    char* const whole = f.allocate(kSegment);
    CHECK(whole == std::ranges::min(blocks));
    f.release(whole);
  }
  CHECK(f.pool.system_calls() == 1);
}

TEST_CASE("an allocation gets the smallest free block that is large enough", "[tensor]") {
  Fixture f;
  char* const large = f.allocate(2048);
  f.allocate(256);
  char* const small = f.allocate(512);
  f.allocate(256);
  f.release(large);
  f.release(small);
  CHECK(f.allocate(500) == small);
  CHECK(f.allocate(513) == large);
  CHECK(f.allocate(1280) == large + 768);  // what is left of it
}

TEST_CASE("a block larger than a segment gets its own segment, which smaller ones reuse",
          "[tensor]") {
  Fixture f;
  f.allocate(100);
  char* const large = f.allocate(3 * kSegment);
  CHECK((f.pool.system_calls() == 2 && f.system.segments.at(large) == 3 * kSegment));
  f.release(large);
  CHECK(f.allocate(2 * kSegment) == large);
  CHECK(f.allocate(kSegment) == large + 2 * kSegment);
  CHECK(f.pool.system_calls() == 2);
}

TEST_CASE("a block of more bytes than the pool can count is refused", "[tensor]") {
  Fixture f;
  f.release(f.allocate(100));
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t bytes : {most, most - 255}) CHECK(f.pool.allocate(bytes) == nullptr);
}

TEST_CASE("segments are smaller if the system has less, down to the block", "[tensor]") {
  Fixture f(kSegment + kSegment / 4 + 512);
  f.allocate(kSegment);
  char* const part = f.allocate(1000);
  CHECK(f.system.segments.at(part) == kSegment / 4);
  f.allocate(kSegment / 4 - 1024);
  char* const last = f.allocate(500);
  CHECK(f.system.segments.at(last) == 512);
  CHECK(f.allocate(1) == nullptr);
}

TEST_CASE("unused segments go back to the system before an allocation fails", "[tensor]") {
  Fixture f(4 * kSegment);
  std::vector<char*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(f.allocate(kSegment - 256));
  char* const rest = f.allocate(256);  // in one of the four segments
  for (char* block : blocks) f.release(block);
  CHECK(f.allocate(4 * kSegment) == nullptr);  // `rest` still uses one
  CHECK((f.system.segments.size() == 1 && f.system.segments.begin()->first <= rest));
  CHECK(f.allocate(3 * kSegment));
  f.release(rest);
  CHECK(f.allocate(kSegment));
  CHECK(f.allocate(1) == nullptr);
  CHECK_FALSE(f.system.wrong_release);
}

TEST_CASE("a pool gives all segments back at its end", "[tensor]") {
  ArraySystem system;
  {
    BlockPool pool(system);
    for (const int64_t bytes : {int64_t(7), 2 * kSegment, kSegment - 1})
      pool.release(pool.allocate(bytes), bytes);
    CHECK(system.segments.size() == 2);
  }
  CHECK((system.segments.empty() && !system.wrong_release));
}

TEST_CASE("segments that lie side by side are not merged", "[tensor]") {
  for (const bool upwards : {false, true}) {
    Fixture f(64 * kSegment, upwards);
    std::vector<char*> segments;
    for (int i = 0; i < 4; ++i) segments.push_back(f.allocate(kSegment));
    std::ranges::sort(segments);
    CHECK(segments[3] == segments[0] + 3 * kSegment);
    if (!upwards) std::ranges::reverse(segments);
    for (char* segment : segments) f.release(segment);
    CHECK(f.allocate(2 * kSegment));
    CHECK(f.pool.system_calls() == 5);
  }
}

// The model: which bytes are held. After each step no two blocks overlap and all are in segments.
TEST_CASE("blocks allocated and released at random never overlap, and nothing is lost",
          "[tensor]") {
  Fixture f;
  std::mt19937 random(20261121);
  std::map<char*, int64_t> held;
  const auto release = [&](std::map<char*, int64_t>::iterator block) {
    const char* const bytes = block->first;
    const bool kept =
        std::all_of(bytes, bytes + block->second, [&](char b) { return b == char(block->second); });
    REQUIRE(kept);  // nothing else was written there
    f.release(block->first);
    held.erase(block);
  };
  for (int i = 0; i < 5000; ++i) {
    if (held.size() > 40 || (random() % 2 && !held.empty())) {
      release(std::next(held.begin(), long(random() % held.size())));
      continue;
    }
    const int64_t bytes = 1 + int64_t(random() % (1u << (random() % 21)));
    char* const block = f.allocate(bytes);
    REQUIRE(block);
    const auto after = held.lower_bound(block);
    const bool apart =
        (after == held.end() || block + bytes <= after->first) &&
        (after == held.begin() || std::prev(after)->first + std::prev(after)->second <= block);
    const auto segment = std::prev(f.system.segments.upper_bound(block));
    REQUIRE((apart && block + bytes <= segment->first + segment->second));
    std::fill_n(block, bytes, char(bytes));
    held.emplace(block, bytes);
  }
  while (!held.empty()) release(held.begin());
  const int64_t calls = f.pool.system_calls();
  std::vector<int64_t> sizes;
  for (const auto& segment : f.system.segments) sizes.push_back(segment.second);
  std::ranges::sort(sizes, std::greater{});
  for (const int64_t bytes : sizes) CHECK(f.allocate(bytes));  // every segment is whole again
  CHECK(f.pool.system_calls() == calls);
  CHECK((f.allocate(1) && f.pool.system_calls() > calls));
}

TEST_CASE("a repeated sequence takes nothing more from the system", "[tensor]") {
  Fixture f;
  const auto step = [&](int64_t more) {
    std::vector<char*> blocks;
    for (const int64_t bytes : {300'000, 5, 700'000, 4096, 900'000, 123'456})
      blocks.push_back(f.allocate(bytes + more));
    for (const size_t i : {4, 0, 5, 2, 1, 3}) f.release(blocks[i]);
  };
  step(0);
  const int64_t calls = f.pool.system_calls();
  for (int i = 0; i < 10; ++i) step(0);
  CHECK(f.pool.system_calls() == calls);
  step(3 * kSegment);
  CHECK(f.pool.system_calls() > calls);
}

// A system of segments of their own, as under AddressSanitizer.
class BlocksApart final : public CpuBackend {
 public:
  int64_t segment() const override { return 0; }
};

TEST_CASE("with segments of 0 bytes each block goes back to the system when it is released",
          "[tensor]") {
  BlocksApart system;
  BlockPool pool(system);
  void* const a = pool.allocate(100);
  void* const b = pool.allocate(100);
  CHECK((a && b && pool.system_calls() == 2));
  pool.release(a, 100);
  pool.release(b, 100);
  CHECK(pool.system_calls() == 4);
}

}  // namespace
