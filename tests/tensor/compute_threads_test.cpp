// in_parallel: ranges, threads, exceptions, nested calls, several teams at once.

#include "tensor/cpu/compute_threads.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/with_threads.h"

namespace {

using namespace zl;
using namespace zl::test;

struct Range {
  int64_t part, begin, end;
  auto operator<=>(const Range&) const = default;
};

std::vector<Range> ranges_of(int64_t n, int64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  in_parallel(n, grain, [&](int64_t part, int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    ranges.push_back({part, begin, end});
  });
  std::ranges::sort(ranges);
  return ranges;
}

// How often a rank computes that other ranks compute beside it.
constexpr int kRounds = 300;

// Adds 1 to each element in each round. Returns how many elements are not kRounds then.
int64_t wrong_after_rounds(int64_t n) {
  std::vector<int> times(size_t(n), 0);
  for (int round = 0; round < kRounds; ++round)
    in_parallel(n, 3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++times[size_t(i)];
    });
  return n - std::ranges::count(times, kRounds);
}

}  // namespace

TEST_CASE(
    "ranges cover all elements once, in order of the parts, and end at multiples of the grain",
    "[tensor]") {
  for (const int threads : {1, 2, 3, 5, 8}) {
    const WithThreads with(threads);
    for (const int64_t n : {0, 1, 2, 7, 8, 9, 63, 64, 65, 1000}) {
      for (const int64_t grain : {1, 2, 8, 100}) {
        CAPTURE(threads, n, grain);
        const std::vector<Range> ranges = ranges_of(n, grain);
        const int64_t grains = (n + grain - 1) / grain;
        CHECK(int64_t(ranges.size()) == std::max<int64_t>(1, std::min<int64_t>(threads, grains)));
        CHECK(int64_t(ranges.size()) == parallel_parts(n, grain));
        int64_t end = 0;
        for (size_t i = 0; i < ranges.size(); ++i) {
          CHECK(ranges[i].part == int64_t(i));
          CHECK(ranges[i].begin == end);
          end = ranges[i].end;
          if (i + 1 < ranges.size()) CHECK((end % grain == 0 && end > ranges[i].begin));
        }
        CHECK(end == n);
      }
    }
  }
}

TEST_CASE("parts run at the same time, on one thread each, the caller among them", "[tensor]") {
  const WithThreads with(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::atomic<int> begun = 0;
  in_parallel(3, 1, [&](int64_t, int64_t) {
    ++begun;
    while (begun < 3) std::this_thread::yield();  // so no thread can compute two of them
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  CHECK(ids.size() == 3);
  CHECK(ids.contains(std::this_thread::get_id()));
  ids.clear();
  in_parallel(3, 3, [&](int64_t, int64_t) { ids.insert(std::this_thread::get_id()); });
  CHECK(ids == std::set{std::this_thread::get_id()});  // one grain: no other thread
}

TEST_CASE("the exception of the lowest part is rethrown after all parts have ended", "[tensor]") {
  const WithThreads with(5);
  for (const int64_t first : {0, 1, 4}) {
    CAPTURE(first);
    std::atomic<int> ended = 0;
    std::string caught;
    try {
      in_parallel(5, 1, [&](int64_t part, int64_t, int64_t) {
        ++ended;
        if (part >= first) throw std::runtime_error(std::to_string(part));
      });
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    CHECK(caught == std::to_string(first));
    CHECK(ended == 5);
  }
  CHECK(ranges_of(5, 1).size() == 5);  // the team still works
}

TEST_CASE("a call inside of a part runs on that part's thread", "[tensor]") {
  const WithThreads with(3);
  std::atomic<int> inner = 0, other_thread = 0;
  in_parallel(3, 1, [&](int64_t, int64_t) {
    const std::thread::id here = std::this_thread::get_id();
    if (parallel_parts(100, 1) != 1) ++other_thread;
    in_parallel(100, 1, [&](int64_t part, int64_t begin, int64_t end) {
      ++inner;
      if (part != 0 || begin != 0 || end != 100 || std::this_thread::get_id() != here)
        ++other_thread;
    });
  });
  CHECK(inner == 3);
  CHECK(other_thread == 0);
  CHECK(parallel_parts(100, 1) == 3);
}

TEST_CASE("many ranks with threads each compute their own elements, on any number of cores",
          "[tensor]") {
  const WithThreads with(4);
  constexpr int kRanks = 12;
  std::vector<int64_t> wrong(kRanks, -1);
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < kRanks; ++r)
      ranks.emplace_back([&, r] { wrong[size_t(r)] = wrong_after_rounds(10 + r); });
  }
  CHECK(wrong == std::vector<int64_t>(kRanks, 0));
}

TEST_CASE("a team grows and shrinks with the number of threads", "[tensor]") {
  for (const int threads : {2, 7, 3, 1, 4}) {
    const WithThreads with(threads);
    CHECK(compute_threads() == threads);
    CHECK(ranges_of(1000, 1).size() == size_t(threads));
  }
  CHECK(compute_threads() == 1);
}

TEST_CASE("numbers of threads that no rank can have are refused", "[tensor]") {
  for (const int threads : {0, -1, kMostComputeThreads + 1})
    CHECK_THROWS_AS(set_compute_threads(threads), std::invalid_argument);
  CHECK(compute_threads() == 1);
}
