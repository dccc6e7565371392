// The fake is no more lenient than NCCL: what does not fit never completes, a stream is NCCL's
// until it has taken a group, and misuse is noted. That it moves the right bytes is shown by all
// that has the bits of threads through it. Nothing in it waits, so here one thread is all ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tensor/error.h"
#include "tests/nccl/fake/fake_nccl.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;
using R = NcclResult;

namespace {

struct Ranks {
  explicit Ranks(int count, bool processes = true, Deaths deaths = Deaths::unnoticed)
      : fake(processes ? FakeNccl({}, deaths) : FakeNccl()) {
    CHECK(api.get_unique_id(&id) == R::success);
    for (int r = 0; r < count; ++r) join(r, count);
  }
  void join(int rank, int size) {
    CHECK(api.comm_init_rank(&comms.emplace_back(), size, id, rank) == R::in_progress);
  }
  R state(size_t rank) const {
    R state = R::success;
    CHECK(api.comm_get_async_error(comms[rank], &state) == R::success);
    return state;
  }
  // What every rank that is left has been told after many polls.
  std::vector<R> settled() const {
    std::vector<R> states;
    for (int polls = 0; polls < 100; ++polls) {
      states.clear();
      for (size_t r = 0; r < comms.size(); ++r)
        if (comms[r]) states.push_back(state(r));
    }
    return states;
  }
  void abort(size_t rank) {
    CHECK(api.comm_abort(std::exchange(comms[rank], nullptr)) == R::success);
  }

  FakeNccl fake;
  const NcclApi api = fake.api();
  NcclUniqueId id;
  std::vector<NcclComm*> comms;  // by rank
};

std::vector<R> all(size_t ranks, R result) { return std::vector<R>(ranks, result); }

// A call, and how rank 1 makes another one.
struct Odd {
  Collective kind = Collective::all_reduce;
  size_t count = 9;
  NcclType type = NcclType::float32;
  int peer = 0;
};

R ask(const NcclApi& api, const Odd& how, std::vector<float>& values, NcclComm* comm,
      void* stream = nullptr) {
  float* const data = values.data();
  const auto [kind, count, type, peer] = how;
  if (kind == Collective::all_reduce)
    return api.all_reduce(data, data, count, type, NcclOperator::sum, comm, stream);
  if (kind == Collective::reduce_scatter)
    return api.reduce_scatter(data, data, count, type, NcclOperator::sum, comm, stream);
  if (kind == Collective::all_gather) return api.all_gather(data, data, count, type, comm, stream);
  if (kind == Collective::send) return api.send(data, count, type, peer, comm, stream);
  return api.receive(data, count, type, peer, comm, stream);
}

// What has become of the calls of three ranks; `odd` is rank 1's.
std::vector<R> after(const Odd& usual, const Odd& odd, bool processes) {
  Ranks ranks(3, processes);
  CHECK(ranks.settled() == all(3, R::success));
  std::vector<std::vector<float>> values(3, std::vector<float>(30));
  for (size_t r = 0; r < 3; ++r)
    CHECK(ask(ranks.api, r == 1 ? odd : usual, values[r], ranks.comms[r]) == R::in_progress);
  return ranks.settled();
}

}  // namespace

TEST_CASE("in the fake calls that do not fit never complete, on no rank", "[nccl]") {
  using C = Collective;
  const bool processes = GENERATE(false, true);
  for (const C kind : {C::all_reduce, C::reduce_scatter, C::all_gather}) {
    const Odd usual{.kind = kind};
    CAPTURE(processes, name(kind));
    CHECK(after(usual, usual, processes) == all(3, R::success));  // the twin
    CHECK(after(usual, {.kind = kind, .count = 10}, processes) == all(3, R::in_progress));
    CHECK(after(usual, {.kind = kind, .type = NcclType::int32}, processes) ==
          all(3, R::in_progress));
    if (kind != C::all_reduce)
      CHECK(after(usual, {.kind = C::all_reduce}, processes) == all(3, R::in_progress));
  }
}

TEST_CASE("the fake receives nothing of another count, and needs every rank", "[nccl]") {
  using C = Collective;
  constexpr NcclType type = NcclType::float32;
  const bool processes = GENERATE(false, true);
  for (const size_t count : {size_t(7), size_t(8)}) {
    Ranks two(2, processes);
    std::vector<float> from(8, 1), to(8);
    CHECK(two.settled() == all(2, R::success));
    CHECK(ask(two.api, {C::send, 8, type, 1}, from, two.comms[0]) == R::in_progress);
    CHECK(two.settled()[0] == R::in_progress);  // its first one, which connects
    CHECK(ask(two.api, {C::receive, count, type, 0}, to, two.comms[1]) == R::in_progress);
    CHECK((two.settled()[1] == R::success) == (count == 8));
    CHECK((to == from) == (count == 8));
  }
  {
    Ranks three(3, processes);
    std::vector<float> values(9);
    CHECK(three.settled() == all(3, R::success));
    for (const size_t r : {0, 2})
      CHECK(ask(three.api, {}, values, three.comms[r]) == R::in_progress);
    CHECK(three.settled()[2] == R::in_progress);
  }
  Ranks none(0, processes);
  none.join(0, 2);
  none.join(2, 3);  // which means another number of ranks
  CHECK(none.settled() == all(2, R::in_progress));
  none.join(1, 2);
  CHECK(none.settled() == std::vector{R::success, R::in_progress, R::success});
  CHECK(none.api.comm_finalize(none.comms[0]) == R::in_progress);
  CHECK(none.settled()[0] == R::in_progress);  // until all leave
  CHECK(none.api.comm_finalize(none.comms[2]) == R::in_progress);
  CHECK(none.settled()[0] == R::success);
}

TEST_CASE("a rank of the fake that is gone is a remote error to the others, or nothing ever again",
          "[nccl]") {
  const Deaths deaths = GENERATE(Deaths::noticed, Deaths::unnoticed);
  Ranks ranks(3, true, deaths);
  std::vector<std::vector<float>> values(3, std::vector<float>(9));
  CHECK(ranks.settled() == all(3, R::success));
  for (const size_t r : {0, 2})
    CHECK(ask(ranks.api, {}, values[r], ranks.comms[r]) == R::in_progress);
  CHECK(ranks.settled()[0] == R::in_progress);
  ranks.abort(1);
  CHECK(ranks.settled() == all(2, deaths == Deaths::noticed ? R::remote_error : R::in_progress));
}

TEST_CASE("the fake notes what NCCL does not allow", "[nccl]") {
  using C = Collective;
  const bool processes = GENERATE(false, true);
  Ranks none(0, processes);
  const FakeNccl& fake = none.fake;
  const NcclApi& api = none.api;
  const NcclUniqueId& id = none.id;
  NcclComm *first = nullptr, *second = nullptr;
  CHECK(api.comm_init_rank(&first, 1, NcclUniqueId{}, 0) == R::invalid_argument);
  CHECK(api.comm_init_rank(&first, 2, id, 2) == R::invalid_argument);
  CHECK(fake.misuse() == "");
  CHECK(api.comm_init_rank(&first, 2, id, 0) == R::in_progress);
  std::vector<float> values(4);
  CHECK(ask(api, {.count = 4}, values, first) == R::in_progress);
  CHECK_THAT(fake.misuse(), ContainsSubstring("ncclAllReduce while another call is in progress") &&
                                ContainsSubstring("rank 0 was ended 0 times"));
  CHECK(ask(api, {C::send, 4, NcclType::float32, 2}, values, first) == R::invalid_argument);
  if (processes) {
    CHECK(ask(api, {C::send, 4, NcclType::float32, 1}, values, first, &values) ==
          R::invalid_argument);
    CHECK_THAT(fake.misuse(), ContainsSubstring("ncclSend in a stream"));
  }
  std::thread([&] { (void)ask(api, {.count = 4}, values, first); }).join();
  CHECK_THAT(fake.misuse(), ContainsSubstring("ncclAllReduce on another thread"));
  CHECK(api.comm_init_rank(&second, 2, id, 0) == R::invalid_usage);
  CHECK_THAT(fake.misuse(), ContainsSubstring("two ranks 0"));
  CHECK(api.group_start() == R::success);
  CHECK_THAT(fake.misuse(), ContainsSubstring("a group is open"));
  CHECK(api.group_end() == R::success);
  CHECK(api.group_end() == R::invalid_usage);
  CHECK(api.comm_destroy(second) == R::success);
  CHECK_THAT(fake.misuse(), ContainsSubstring("destroyed before it was finalised"));
  CHECK(api.comm_abort(first) == R::success);
  CHECK(api.comm_abort(first) == R::success);
  CHECK(ask(api, {.count = 4}, values, first) == R::invalid_argument);
  R state = R::success;
  CHECK(api.comm_get_async_error(first, &state) == R::invalid_argument);
  CHECK_THAT(fake.misuse(), ContainsSubstring("aborted after its end") &&
                                ContainsSubstring("ncclAllReduce after the end") &&
                                ContainsSubstring("a poll after the end"));
}

TEST_CASE("the fake takes a group after some polls, and keeps its stream until then", "[nccl]") {
  Ranks one(1, false);
  CHECK(one.state(0) == R::success);
  LaggingCpu gpu;
  std::vector<float> values(4);
  void* const stream = gpu.native_stream(Stream::communication);
  CHECK(one.api.group_start() == R::success);
  CHECK(ask(one.api, {.kind = Collective::all_gather, .count = 4}, values, one.comms[0], stream) ==
        R::success);
  CHECK(one.api.group_end() == R::in_progress);
  const auto refusal = ContainsSubstring("while NCCL has not taken its group");
  for (int polls = 0; polls < 3; ++polls) {
    CHECK_THROWS_WITH(gpu.record_event(Stream::communication), refusal);
    CHECK_THROWS_WITH(gpu.move_bytes(&values[0], &values[1], 4), refusal);
    CHECK(one.state(0) == R::in_progress);
  }
  CHECK(one.state(0) == R::success);
  CHECK_NOTHROW(gpu.record_event(Stream::communication));
  gpu.synchronize();
  CHECK(one.api.comm_finalize(one.comms[0]) == R::in_progress);
  CHECK(one.state(0) == R::success);
  CHECK(one.api.comm_destroy(one.comms[0]) == R::success);
  CHECK(one.fake.misuse() == "");
}

TEST_CASE("faults are read from words, and words that mean none are refused", "[nccl]") {
  const auto faults =
      faults_from("ncclAllGather:never:rank=2:call=3; ncclSend:fails:rank=-1:call=1");
  REQUIRE(faults.size() == 2);
  CHECK((faults[0].function == "ncclAllGather" && faults[0].kind == Fault::Kind::never &&
         faults[0].rank == 2 && faults[0].call == 3));
  CHECK((faults[1].function == "ncclSend" && faults[1].kind == Fault::Kind::fails &&
         faults[1].rank == -1));
  CHECK(faults_from("").empty());
  for (const char* none : {"ncclSend", "ncclSend:dies:rank=1:call=1", "ncclSend:fails:rank=one"})
    CHECK_THROWS_AS(faults_from(none), InputError);
}
