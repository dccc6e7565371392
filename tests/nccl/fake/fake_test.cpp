// The fake does what NCCL does, between threads and between processes: every function and type,
// groups, order, joining and leaving.
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tensor/dtype.h"
#include "tests/nccl/fake/fake_nccl.h"
#include "tests/nccl/processes/fake_rank.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using R = NcclResult;

namespace {

template <class T>
constexpr NcclType kType = NcclType::float32;
template <>
constexpr NcclType kType<bf16> = NcclType::bfloat16;
template <>
constexpr NcclType kType<f16> = NcclType::float16;
template <>
constexpr NcclType kType<double> = NcclType::float64;
template <>
constexpr NcclType kType<int32_t> = NcclType::int32;

// Whole numbers small enough that every type adds them exactly.
template <class T>
T value(int rank, size_t element) {
  return T(float((rank + 1) * int(element % 7 + 1)));
}
template <class T>
T sum(int ranks, size_t element) {
  return T(float(ranks * (ranks + 1) / 2 * int(element % 7 + 1)));
}

template <class T>
std::vector<T> values(int rank, size_t count) {
  std::vector<T> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = value<T>(rank, i);
  return all;
}

template <class T>
NcclData data(const T* from, T* to, size_t count) {
  return {from, to, count, kType<T>};
}

template <class T>
void check_sums(const FakeRank& r, size_t count) {
  const auto right = [&](const T* got, size_t first) {
    for (size_t i = 0; i < count; ++i)
      if (float(got[i]) != float(sum<T>(r.size, first + i))) return false;
    return true;
  };
  auto in = values<T>(r.rank, count);
  std::vector<T> out(count);
  r.done(r.api.all_reduce(data(in.data(), out.data(), count), r.stream()), "all_reduce");
  expect(right(out.data(), 0), "all_reduce of ", count);
  r.done(r.api.all_reduce(data(in.data(), in.data(), count), r.stream()), "all_reduce");
  expect(right(in.data(), 0), "all_reduce in place of ", count);

  const size_t own = size_t(r.rank) * count;
  auto whole = values<T>(r.rank, count * size_t(r.size));
  r.done(r.api.reduce_scatter(data(whole.data(), out.data(), count), r.stream()), "reduce_scatter");
  expect(right(out.data(), own), "reduce_scatter of ", count);
  r.done(r.api.reduce_scatter(data(whole.data(), whole.data() + own, count), r.stream()),
         "reduce_scatter");
  expect(right(whole.data() + own, own), "reduce_scatter in place of ", count);
}

template <class T>
void check_copies(const FakeRank& r, size_t count) {
  const auto from_rank = [&](const T* got, int rank) {
    for (size_t i = 0; i < count; ++i)
      if (float(got[i]) != float(value<T>(rank, i))) return false;
    return true;
  };
  const auto in = values<T>(r.rank, count);
  std::vector<T> whole(count * size_t(r.size)), out(count);
  r.done(r.api.all_gather(data(in.data(), whole.data(), count), r.stream()), "all_gather");
  for (int other = 0; other < r.size; ++other)
    expect(from_rank(whole.data() + size_t(other) * count, other), "all_gather of ", count);
  whole.assign(whole.size(), T(0.0f));
  T* const own = whole.data() + size_t(r.rank) * count;
  std::copy(in.begin(), in.end(), own);
  r.done(r.api.all_gather(data(own, whole.data(), count), r.stream()), "all_gather");
  for (int other = 0; other < r.size; ++other)
    expect(from_rank(whole.data() + size_t(other) * count, other), "all_gather in place of ",
           count);
  for (int root = 0; root < r.size; ++root) {
    out = in;
    r.done(r.api.broadcast(data(out.data(), out.data(), count), root, r.stream()), "broadcast");
    expect(from_rank(out.data(), root), "broadcast of ", count, " from ", root);
  }
  whole.assign(whole.size(), T(0.0f));
  r.group([&] {  // each to each, itself too
    for (int other = 0; other < r.size; ++other)
      (void)r.api.send(data<T>(in.data(), nullptr, count), other, r.stream());
    for (int other = r.size - 1; other >= 0; --other)
      (void)r.api.receive(data<T>(nullptr, whole.data() + size_t(other) * count, count), other,
                          r.stream());
  });
  for (int other = 0; other < r.size; ++other)
    expect(from_rank(whole.data() + size_t(other) * count, other), "send of ", count);
}

template <class T>
void check_type(const FakeRank& r) {
  for (const size_t count : {0, 1, 5, 1023}) {
    check_sums<T>(r, count);
    check_copies<T>(r, count);
  }
}

// The sum of one value of each rank, as every rank must see it.
std::vector<ProcessEnd> add_once(const std::vector<float>& values, float expected) {
  return run_fake_ranks(int(values.size()), [=](FakeRank& r) {
    r.done(R::success, "joining");
    float one = values[size_t(r.rank)];
    r.done(r.api.all_reduce(data(&one, &one, 1), r.stream()), "all_reduce");
    expect(one == expected, "the sum is ", one);
    r.leave();
  });
}

}  // namespace

TEST_CASE("the fake carries out every function for every type and odd counts", "[nccl]") {
  const auto every_type = [](FakeRank& r) {
    r.done(R::success, "joining");
    check_type<float>(r);
    check_type<bf16>(r);
    check_type<f16>(r);
    check_type<double>(r);
    check_type<int32_t>(r);
    r.leave();
  };
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  CAPTURE(ranks);
  SECTION("between processes") {
    require_forks();
    CHECK(not_well(run_fake_ranks(ranks, every_type)) == "");
  }
  SECTION("between threads") {
    FakeNccl fake;
    CHECK(run_thread_ranks(fake, ranks, every_type) == ranks);
    CHECK(fake.misuse() == "");
  }
  SECTION("between threads that meet as processes do, and a name is free when all are gone") {
    FakeNccl fake({}, Deaths::noticed);
    const NcclUniqueId id = new_id(fake);
    for (int round = 0; round < 3; ++round)
      CHECK(run_thread_ranks(fake, ranks, every_type, id) == ranks);
    CHECK(fake.misuse() == "");
    CHECK(fake.calls("ncclCommDestroy") == 3 * ranks);
  }
}

TEST_CASE("the fake adds as a ring does: not in the order of ranks", "[nccl]") {
  require_forks();
  // Around from rank 1 to rank 0, who owns the only element: (1 + -1e8) + 1e8 loses the 1, (1e8 +
  // -1e8) + 1 would not.
  CHECK(not_well(add_once({1e8f, 1, -1e8f}, 0)) == "");
  CHECK(not_well(add_once({1, 1e8f, -1e8f}, 1)) == "");
  CHECK(not_well(add_once({1, 1e8f, -1e8f}, 2)) != "");  // the twin
}

TEST_CASE("the fake moves groups at once: each rank sends 64 MB to each before it receives",
          "[nccl]") {
  require_forks();
  const int ranks = GENERATE(2, 3);
  const auto ends = run_fake_ranks(ranks, [](FakeRank& r) {
    const size_t count = 16'000'001;
    r.done(NcclResult::success, "joining");
    const std::vector<float> out(count, float(r.rank + 1));
    std::vector<float> in(count);
    const int next = (r.rank + 1) % r.size, last = (r.rank + r.size - 1) % r.size;
    r.group([&] {
      (void)r.api.send(data<float>(out.data(), nullptr, count), next, r.stream());
      (void)r.api.receive(data<float>(nullptr, in.data(), count), last, r.stream());
    });
    expect(in == std::vector<float>(count, float(last + 1)), "what came");
    r.done(r.api.all_reduce(data(out.data(), in.data(), count), r.stream()), "all_reduce");
    expect(in == std::vector<float>(count, float(r.size * (r.size + 1) / 2)), "the sums");
    r.leave();
  });
  CHECK(not_well(ends) == "");
}

TEST_CASE("the fake keeps the order between two ranks, and that of collectives in a group",
          "[nccl]") {
  require_forks();
  const auto ends = run_fake_ranks(3, [](FakeRank& r) {
    r.done(NcclResult::success, "joining");
    std::vector<float> sums{1, 2, 3, 4}, got(20), parts(20);
    for (int i = 0; i < 20; ++i) parts[size_t(i)] = float(i);
    const auto add = [&] {
      return r.api.all_reduce(data(sums.data(), sums.data(), sums.size()), r.stream());
    };
    if (r.rank == 2) {  // one after the other, or as a group: the same
      for (int i = 0; i < 3; ++i) r.done(add(), "all_reduce");
    } else {
      r.group([&] {
        for (int i = 0; i < 3; ++i) (void)add();
      });
    }
    expect(sums == std::vector<float>{27, 54, 81, 108}, "the sums of sums");
    r.group([&] {
      for (size_t i = 0; i < 20; ++i) {
        if (r.rank == 0) (void)r.api.send(data<float>(&parts[i], nullptr, 1), 1, r.stream());
        if (r.rank == 1) (void)r.api.receive(data<float>(nullptr, &got[i], 1), 0, r.stream());
      }
    });
    if (r.rank == 1) expect(got == parts, "another order");
    r.leave();
  });
  CHECK(not_well(ends) == "");
}

TEST_CASE("the fake is in progress until all ranks have joined, and until all have left",
          "[nccl]") {
  require_forks();
  const NcclUniqueId id = new_id();
  const auto rank = [&](int child, const Processes::Say&) {
    FakeNccl fake({}, Deaths::noticed);
    if (child == 2) std::this_thread::sleep_for(300ms);
    const FakeRank r(fake.api(), id, child, 3);
    if (child != 2) expect(r.settle(60ms) == NcclResult::in_progress, "joined without rank 2");
    r.done(NcclResult::success, "joining");
    if (child != 0) std::this_thread::sleep_for(300ms);
    (void)r.api.comm_finalize(r.comm);
    if (child == 0) expect(r.settle(60ms) == NcclResult::in_progress, "left alone");
    r.done(NcclResult::success, "leaving");
    return r.api.comm_destroy(r.comm) == NcclResult::success && fake.misuse().empty() ? 0 : 1;
  };
  CHECK(not_well(run_processes(3, rank, 30s)) == "");
}

TEST_CASE(
    "in the fake a rank that never comes, or means another number of ranks, keeps the "
    "others from joining",
    "[nccl]") {
  require_forks();
  const NcclUniqueId id = new_id();
  const auto ends = run_processes(
      3,
      [&](int child, const Processes::Say&) {
        FakeNccl fake({}, Deaths::unnoticed);
        if (child == 2) return 0;
        FakeRank rank(fake.api(), id, child, child == 1 ? 4 : 2);
        expect(rank.settle(150ms) == NcclResult::in_progress, "joined");
        rank.abort();
        return 0;
      },
      10s);
  CHECK(not_well(ends) == "");
}

TEST_CASE("the fake takes a group after some polls, and keeps its stream until then", "[nccl]") {
  FakeNccl fake;
  const NcclApi api = fake.api();
  const auto polls = [&](NcclComm* comm) {  // that say in progress
    for (int n = 0;; ++n) {
      R state = R::success;
      CHECK(api.comm_get_async_error(comm, &state) == R::success);
      if (state != R::in_progress || n == 100) return n;
    }
  };
  NcclUniqueId id;
  NcclComm* comm = nullptr;
  CHECK(api.get_unique_id(&id) == R::success);
  CHECK(api.comm_init_rank(&comm, 1, id, 0) == R::in_progress);
  CHECK(polls(comm) == 0);
  LaggingCpu gpu;
  std::vector<float> values(4);
  const NcclStream stream{comm, gpu.native_stream(Stream::communication)};
  CHECK(api.group_start() == R::success);
  CHECK(api.all_gather({values.data(), values.data(), 4, NcclType::float32}, stream) == R::success);
  CHECK(api.group_end() == R::in_progress);
  CHECK_THROWS_WITH(gpu.record_event(Stream::communication),
                    ContainsSubstring("while NCCL has not taken its group"));
  CHECK_THROWS_WITH(gpu.move_bytes(&values[0], &values[1], 4),
                    ContainsSubstring("while NCCL has not taken its group"));
  CHECK(polls(comm) == 3);
  CHECK_NOTHROW(gpu.record_event(Stream::communication));
  gpu.synchronize();
  CHECK(api.comm_finalize(comm) == R::in_progress);
  CHECK(polls(comm) == 0);
  CHECK(api.comm_destroy(comm) == R::success);
  CHECK(fake.misuse() == "");
}
