// The pool below the ledger of a GPU, through its backend: segments from the driver, blocks from
// segments.
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
  char* take(int64_t bytes) { return static_cast<char*>(gpu->allocate(bytes)); }
  void give(void* block) { gpu->release(block, 0); }
};

}  // namespace

TEST_CASE("one segment from the driver serves many blocks, aligned and apart", "[cuda]") {
  GpuPool pool;
  char* const a = pool.take(1);
  char* const b = pool.take(1000);
  char* const c = pool.take(257);
  CHECK(pool.gpu->driver_calls() == 1);
  CHECK((b == a + 256 && c == b + 1024));
  CHECK(uintptr_t(a) % 256 == 0);
}

TEST_CASE("what is given back joins its neighbours, in whatever order", "[cuda]") {
  GpuPool pool;
  const int64_t third = kSegment / 4;
  for (const std::array<int, 3> order : {std::array{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}}) {
    const std::array<char*, 3> blocks{pool.take(third), pool.take(third), pool.take(third)};
    for (const int i : order) pool.give(blocks[size_t(i)]);
    char* const whole = pool.take(kSegment);  // only all of the segment holds it
    CHECK(whole == std::min({blocks[0], blocks[1], blocks[2]}));
    pool.give(whole);
  }
  CHECK(pool.gpu->driver_calls() == 1);
}

TEST_CASE("the smallest free block that is large enough is taken", "[cuda]") {
  GpuPool pool;
  char* const large = pool.take(2048);
  char* const wall = pool.take(256);
  char* const small = pool.take(512);
  char* const end = pool.take(256);
  pool.give(large);
  pool.give(small);
  CHECK(pool.take(500) == small);
  CHECK(pool.take(513) == large);
  pool.give(wall);
  pool.give(end);
}

TEST_CASE("a block larger than a segment has one of its own", "[cuda]") {
  GpuPool pool;
  char* const small = pool.take(100);
  char* const large = pool.take(3 * kSegment);
  CHECK(pool.gpu->driver_calls() == 2);
  pool.give(large);
  pool.give(small);
  CHECK(pool.take(2 * kSegment) == large);
  CHECK(pool.gpu->driver_calls() == 2);
}

TEST_CASE("a GPU that is full gives back free segments before it says that there is no more",
          "[cuda]") {
  if (real_gpu()) SKIP("others may use this GPU");
  GpuPool pool;
  const int64_t most = int64_t(1) << 30;
  char* const half = pool.take(most / 2);
  REQUIRE(half);
  CHECK(pool.take(most) == nullptr);
  pool.give(half);
  char* const whole = pool.take(most - (64 << 20));  // the rest is for other cases' blocks
  CHECK(whole);
  CHECK(pool.take(most / 2) == nullptr);
}

TEST_CASE("blocks taken and given back at random never overlap", "[cuda]") {
  GpuPool pool;
  std::mt19937 random(20261121);
  std::map<char*, int64_t> held;
  for (int i = 0; i < 3000; ++i) {
    if (held.size() > 40 || (random() % 2 && !held.empty())) {
      const auto victim = std::next(held.begin(), long(random() % held.size()));
      pool.give(victim->first);
      held.erase(victim);
      continue;
    }
    const int64_t bytes = 1 + random() % (1 << (random() % 19));
    char* const block = pool.take(bytes);
    const auto after = held.lower_bound(block);
    const bool apart =
        (after == held.end() || block + bytes <= after->first) &&
        (after == held.begin() || std::prev(after)->first + std::prev(after)->second <= block);
    REQUIRE(apart);
    held.emplace(block, bytes);
  }
  CHECK(pool.gpu->driver_calls() < 60);
}

TEST_CASE("segments that lie side by side stay apart", "[cuda]") {
  require_gpu();
  for (const bool upwards : {false, true}) {
    GpuPool pool;
    std::vector<char*> segments;
    for (int i = 0; i < 4; ++i) segments.push_back(pool.take(kSegment));
    std::ranges::sort(segments);
    if (!upwards) std::ranges::reverse(segments);
    for (char* segment : segments) pool.give(segment);
    char* const large = pool.take(2 * kSegment);
    CHECK(pool.gpu->driver_calls() == 5);
    pool.give(large);
  }
}
