// The memory pool of a GPU, through its backend: segments from the driver, blocks from segments.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>

#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kSegment = 1 << 20;

struct GpuPool {
  std::unique_ptr<Backend> gpu = (require_gpu(), gpu_of_rank(0, {.segment = kSegment}));
  char* allocate(int64_t bytes) { return static_cast<char*>(gpu->allocate(bytes)); }
  void release(void* block) { gpu->release(block, 0); }
};

}  // namespace

TEST_CASE("one segment from the driver serves many blocks, aligned and apart", "[cuda]") {
  GpuPool pool;
  char* const a = pool.allocate(1);
  char* const b = pool.allocate(1000);
  char* const c = pool.allocate(257);
  CHECK(pool.gpu->driver_calls() == 1);
  CHECK((b == a + 256 && c == b + 1024));
  CHECK(uintptr_t(a) % 256 == 0);
}

TEST_CASE("released blocks merge with their neighbours, in any order", "[cuda]") {
  GpuPool pool;
  const int64_t third = kSegment / 4;
  for (const std::array<int, 3> order : {std::array{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}}) {
    const std::array<char*, 3> blocks{pool.allocate(third), pool.allocate(third),
                                      pool.allocate(third)};
    for (const int i : order) pool.release(blocks[size_t(i)]);
    char* const full = pool.allocate(kSegment);  // needs the complete segment
    CHECK(full == std::min({blocks[0], blocks[1], blocks[2]}));
    pool.release(full);
  }
  CHECK(pool.gpu->driver_calls() == 1);
}

TEST_CASE("an allocation gets the smallest free block that is large enough", "[cuda]") {
  GpuPool pool;
  char* const large = pool.allocate(2048);
  char* const wall = pool.allocate(256);
  char* const small = pool.allocate(512);
  char* const end = pool.allocate(256);
  pool.release(large);
  pool.release(small);
  CHECK(pool.allocate(500) == small);
  CHECK(pool.allocate(513) == large);
  pool.release(wall);
  pool.release(end);
}

TEST_CASE("a block larger than a segment gets its own segment", "[cuda]") {
  GpuPool pool;
  char* const small = pool.allocate(100);
  char* const large = pool.allocate(3 * kSegment);
  CHECK(pool.gpu->driver_calls() == 2);
  pool.release(large);
  pool.release(small);
  CHECK(pool.allocate(2 * kSegment) == large);
  CHECK(pool.gpu->driver_calls() == 2);
}

TEST_CASE("a full GPU releases its unused segments before an allocation fails", "[cuda]") {
  if (real_gpu()) SKIP("others may use this GPU");
  GpuPool pool;
  const int64_t most = int64_t(1) << 30;
  char* const half = pool.allocate(most / 2);
  REQUIRE(half);
  CHECK(pool.allocate(most) == nullptr);
  pool.release(half);
  char* const whole = pool.allocate(most - (64 << 20));  // the rest is for other cases' blocks
  CHECK(whole);
  CHECK(pool.allocate(most / 2) == nullptr);
}

TEST_CASE("blocks allocated and released at random never overlap", "[cuda]") {
  GpuPool pool;
  std::mt19937 random(20261121);
  std::map<char*, int64_t> held;
  for (int i = 0; i < 3000; ++i) {
    if (held.size() > 40 || (random() % 2 && !held.empty())) {
      const auto victim = std::next(held.begin(), long(random() % held.size()));
      pool.release(victim->first);
      held.erase(victim);
      continue;
    }
    const int64_t bytes = 1 + random() % (1 << (random() % 19));
    char* const block = pool.allocate(bytes);
    const auto after = held.lower_bound(block);
    const bool apart =
        (after == held.end() || block + bytes <= after->first) &&
        (after == held.begin() || std::prev(after)->first + std::prev(after)->second <= block);
    REQUIRE(apart);
    held.emplace(block, bytes);
  }
  CHECK(pool.gpu->driver_calls() < 60);
}

TEST_CASE("adjacent segments are not merged", "[cuda]") {
  require_gpu();
  for (const bool upwards : {false, true}) {
    GpuPool pool;
    std::vector<char*> segments;
    for (int i = 0; i < 4; ++i) segments.push_back(pool.allocate(kSegment));
    std::ranges::sort(segments);
    if (!upwards) std::ranges::reverse(segments);
    for (char* segment : segments) pool.release(segment);
    char* const large = pool.allocate(2 * kSegment);
    CHECK(pool.gpu->driver_calls() == 5);
    pool.release(large);
  }
}
