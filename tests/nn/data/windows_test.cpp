// The data rule, on examples computed by hand.

#include "nn/data/windows.h"

#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "tensor/random.h"
#include "tests/nn/scratch_folder.h"

namespace zl {
namespace {

using Row = std::vector<int32_t>;

// Three files of 8, 4 and 9 tokens; each token encodes file and position: 0 … 7, 100 … 103, 200 …
// 208. With T = 3 they have floor(7/3) = 2, floor(3/3) = 1 and floor(8/3) = 2 windows: W = 5.
TokenData three_files(const ScratchFolder& folder) {
  const int sizes[] = {8, 4, 9};
  for (int f = 0; f < 3; ++f) {
    std::vector<int> tokens(static_cast<size_t>(sizes[f]));
    std::iota(tokens.begin(), tokens.end(), 100 * f);
    folder.write(str("part_", f, ".bin"), bytes_of<uint16_t>(tokens));
  }
  return TokenData::open(folder.path("part_*.bin"));
}

// First input token of each window, by hand.
const Row kFirst = {0, 3, 100, 200, 203};

struct TokenRows {
  Row ids, targets;
};
TokenRows batch(const Windows& windows, int64_t j, int64_t B) {
  TokenRows b{Row(size_t(B * windows.block_size()), -1), Row(size_t(B * windows.block_size()), -1)};
  windows.fill_rows(j * B, b.ids, b.targets);
  return b;
}

// The first input token of each window of micro-batch j.
Row firsts(const Windows& windows, int64_t j, int64_t B) {
  const TokenRows b = batch(windows, j, B);
  Row tokens;
  for (int64_t i = 0; i < B; ++i) tokens.push_back(b.ids[size_t(i * windows.block_size())]);
  return tokens;
}

TokenData text_of(int64_t tokens) {
  return TokenData::of_text("text", std::string(size_t(tokens), 'x'));
}

}  // namespace

TEST_CASE("a window is T inputs and the same shifted by one", "[nn]") {
  const ScratchFolder folder;
  const Windows windows(three_files(folder), 3);
  CHECK(windows.training() == 5);
  CHECK(windows.held_out() == 0);
  const TokenRows b = batch(windows, 0, 5);
  CHECK(b.ids == Row{0, 1, 2, 3, 4, 5, 100, 101, 102, 200, 201, 202, 203, 204, 205});
  CHECK(b.targets == Row{1, 2, 3, 4, 5, 6, 101, 102, 103, 201, 202, 203, 204, 205, 206});
}

TEST_CASE("no window crosses a file", "[nn]") {
  const ScratchFolder folder;
  const Windows separate(three_files(folder), 3);
  folder.write("one.bin",
               folder.read("part_0.bin") + folder.read("part_1.bin") + folder.read("part_2.bin"));
  const Windows joined(TokenData::open(folder.path("one.bin")), 3);
  CHECK(separate.training() == 5);
  CHECK(joined.training() == 6);  // floor(20 / 3)
  CHECK(batch(joined, 2, 1).ids == Row{6, 7, 100});
  CHECK(batch(separate, 2, 1).ids == Row{100, 101, 102});
}

TEST_CASE("a file of n tokens has floor((n - 1) / T) windows", "[nn]") {
  const auto count = [](int64_t tokens, int64_t T) {
    return Windows(text_of(tokens), T).training();
  };
  CHECK(count(2, 1) == 1);
  CHECK(count(4, 3) == 1);
  CHECK(count(6, 3) == 1);
  CHECK(count(7, 3) == 2);
  CHECK(count(9, 3) == 2);
  CHECK(count(10, 3) == 3);
  CHECK(count(100, 99) == 1);
}

TEST_CASE("micro-batches count over steps, then accumulation, then ranks", "[nn]") {
  const MicroBatches batches{.accumulation = 2, .ranks = 3};
  int64_t j = 0;
  for (int64_t step = 0; step < 4; ++step)
    for (int64_t a = 0; a < 2; ++a)
      for (int64_t r = 0; r < 3; ++r) CHECK(batches.index(step, a, r) == j++);
  CHECK(batches.index(2, 1, 0) == 15);  // (2*2 + 1)*3 + 0
  CHECK(MicroBatches{.accumulation = 3, .ranks = 2}.index(2, 1, 0) ==
        14);  // (2*3 + 1)*2 + 0: A and N are not exchangeable
}

TEST_CASE("three ranks and two accumulations take the windows that were worked out by hand",
          "[nn]") {
  const ScratchFolder folder;
  const Windows windows(three_files(folder), 3);
  const MicroBatches batches{.accumulation = 2, .ranks = 3};
  const int64_t B = 2;
  // Window numbers modulo 5, two for each micro-batch: j = 0: 0 1, 1: 2 3, 2: 4 0, 3: 1 2, 4: 3 4,
  // 5: 0 1, 6: 2 3, 7: 4 0, …
  CHECK(firsts(windows, batches.index(0, 0, 0), B) == Row{0, 3});
  CHECK(firsts(windows, batches.index(0, 0, 1), B) == Row{100, 200});
  CHECK(firsts(windows, batches.index(0, 0, 2), B) == Row{203, 0});
  CHECK(firsts(windows, batches.index(0, 1, 0), B) == Row{3, 100});
  CHECK(firsts(windows, batches.index(0, 1, 1), B) == Row{200, 203});
  CHECK(firsts(windows, batches.index(0, 1, 2), B) == Row{0, 3});
  CHECK(firsts(windows, batches.index(1, 0, 0), B) == Row{100, 200});
  CHECK(firsts(windows, batches.index(1, 0, 1), B) == Row{203, 0});
  CHECK(firsts(windows, batches.index(1, 1, 2), B) == Row{100, 200});  // j = 11: windows 22, 23
}

TEST_CASE("windows go round at W, neither one earlier nor one later", "[nn]") {
  const ScratchFolder folder;
  const Windows windows(three_files(folder), 3);
  for (int64_t j = 0; j < 23; ++j) CHECK(firsts(windows, j, 1) == Row{kFirst[size_t(j % 5)]});
  CHECK(firsts(windows, 0, 12) ==
        Row{0, 3, 100, 200, 203, 0, 3, 100, 200, 203, 0, 3});  // a micro-batch longer than W
  CHECK(firsts(windows, int64_t(1) << 40, 1) == Row{kFirst[(int64_t(1) << 40) % 5]});
}

TEST_CASE("the last tenth of the windows, rounded up, is held out", "[nn]") {
  const auto split = [](int64_t W) {
    const Windows w(text_of(W * 4 + 1), 4, {.hold_out = true});
    return std::pair(w.training(), w.held_out());
  };
  CHECK(split(2) == std::pair<int64_t, int64_t>(1, 1));
  CHECK(split(10) == std::pair<int64_t, int64_t>(9, 1));
  CHECK(split(11) == std::pair<int64_t, int64_t>(9, 2));
  CHECK(split(20) == std::pair<int64_t, int64_t>(18, 2));
  CHECK(split(21) == std::pair<int64_t, int64_t>(18, 3));
  CHECK(Windows(text_of(41), 4).training() == 10);  // without evaluation every window trains
}

TEST_CASE("held-out windows are the last ones and never train", "[nn]") {
  const ScratchFolder folder;
  const TokenData data = three_files(folder);
  for (const bool shuffled : {false, true}) {
    const Windows windows(
        data, 3,
        {.hold_out = true, .shuffle_seed = shuffled ? std::optional<uint64_t>(7) : std::nullopt});
    REQUIRE(windows.training() == 4);
    REQUIRE(windows.held_out() == 1);
    Row ids(3), targets(3);
    windows.fill_held_out(0, ids, targets);
    CHECK(ids == Row{203, 204, 205});
    CHECK(targets == Row{204, 205, 206});
    CHECK_THROWS_AS(windows.fill_held_out(1, ids, targets), std::invalid_argument);
    Row seen = firsts(windows, 0, 4);
    CHECK(seen == firsts(windows, 1, 4));  // W counts the rest
    std::sort(seen.begin(), seen.end());
    CHECK(seen == Row{0, 3, 100, 200});
  }
}

TEST_CASE("shuffling follows the rule in the header exactly, the same in every epoch", "[nn]") {
  const ScratchFolder folder;
  for (const uint64_t seed : {42, 7}) {
    const Windows windows(three_files(folder), 3, {.shuffle_seed = seed});
    std::vector<size_t> order = {0, 1, 2, 3, 4};
    const PhiloxStream random{seed, fnv1a("windows")};
    for (size_t i = 4; i >= 1; --i)
      std::swap(order[i], order[size_t(random.uniform(i) * double(i + 1))]);
    for (int64_t j = 0; j < 10; ++j)
      CHECK(firsts(windows, j, 1) == Row{kFirst[order[size_t(j % 5)]]});
    CHECK(order != std::vector<size_t>{0, 1, 2, 3, 4});
  }
}

TEST_CASE("data shorter than one window is refused with the numbers", "[nn]") {
  const auto refused = [](TokenData data, int64_t T, bool hold_out = false) {
    return sentence_of([&] { Windows(data, T, {.hold_out = hold_out}); });
  };
  check_says(refused(text_of(128), 128),
             "'text' has 128 tokens, but one window of block-size 128 needs 129");
  CHECK(refused(text_of(129), 128).empty());
  check_says(refused(text_of(129), 128, true), "none is left to train on");
  check_says(refused(text_of(1), 1), "has 1 tokens");
  check_says(refused(text_of(5), 0), "block-size must be at least 1, not 0");
  const ScratchFolder folder;
  check_says(refused(three_files(folder), 9), "the longest of the 3 files");
  check_says(refused(three_files(folder), 9), "part_2.bin', has 9 tokens");
  CHECK(Windows(three_files(folder), 8).training() ==
        1);  // the two short files have none, which is not an error
  CHECK(firsts(Windows(three_files(folder), 8), 3, 1) == Row{200});
}

TEST_CASE("spans that are not full windows are refused", "[nn]") {
  const Windows windows(text_of(100), 4);
  Row four(4), five(5), eight(8), none;
  CHECK_NOTHROW(windows.fill_rows(0, four, four));
  CHECK_THROWS_AS(windows.fill_rows(0, five, five), std::invalid_argument);
  CHECK_THROWS_AS(windows.fill_rows(0, eight, four), std::invalid_argument);
  CHECK_THROWS_AS(windows.fill_rows(0, none, none), std::invalid_argument);
  CHECK_THROWS_AS(windows.fill_rows(-1, four, four), std::invalid_argument);
}

TEST_CASE("reading and shuffling ask now and then whether to go on", "[nn]") {
  struct Ended {};
  int asked = 0;
  const Poll poll = [&] {
    if (++asked == 3) throw Ended();
  };
  const int64_t n = 400'000;
  CHECK_THROWS_AS(text_of(n).require_below(200, poll), Ended);
  CHECK(asked == 3);
  asked = 0;
  WindowOptions options{.shuffle_seed = 7};
  options.poll = poll;
  CHECK_THROWS_AS(Windows(text_of(n), 1, options), Ended);
  CHECK(asked == 3);
  asked = -100;  // the twin: a poll that does not throw changes nothing
  CHECK(Windows(text_of(n), 1, options).identity() ==
        Windows(text_of(n), 1, {.shuffle_seed = 7}).identity());
  CHECK(asked > -100);
}

}  // namespace zl
