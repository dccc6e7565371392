// On emulated GPUs communication through NCCL lets the host go on: Work::wait() orders streams, and
// the only synchronisation of a step is that for its norm. The GPUs delay whatever is not waited
// for.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <deque>
#include <string_view>

#include "stages/engine.h"
#include "tensor/kernels.h"
#include "tests/nccl/fake/fake_ranks.h"
#include "tests/stages/odd_model.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int kRanksHere = 2;

Tensor tokens(Memory& memory) {
  const Tensor t = Tensor::empty(memory, MemoryUse::activation, {2, 3}, Dtype::i32);
  kernel::upload<int32_t>(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, t);
  return t;
}

// What rank 0 saw in its second step, of two micro-batches.
struct Seen {
  int64_t host_waits = 0;
  // Kernels that backward enqueued after its first reduction, while calls of this rank were in
  // flight and while none was.
  int beside = 0, alone = 0;
};

// Counts at the events of a rank's backward pass. Must live as long as they are appended.
class Watcher {
 public:
  Watcher(Communicator& comm, const FakeNccl& nccl, Backend& gpu, bool synchronizes)
      : comm_(comm), nccl_(nccl), gpu_(gpu), synchronizes_(synchronizes) {
    comm_.events().listen([this](const Event& event) { see(event); });
  }
  Seen seen;

 private:
  void see(const Event& event) {
    if (std::string_view(event.phase) != "backward") return void(reduced_ = false);
    if (event.kind == EventKind::collective_end) {
      const std::string_view call = event.what;
      reduced_ = reduced_ || call == "reduce_scatter" || call == "all_reduce";
      if (synchronizes_) gpu_.synchronize();
    }
    if (event.kind == EventKind::kernel && reduced_)
      ++(nccl_.in_flight(comm_.rank()) > 0 ? seen.beside : seen.alone);
  }

  Communicator& comm_;
  const FakeNccl& nccl_;
  Backend& gpu_;
  const bool synchronizes_;
  bool reduced_ = false;
};

// `synchronizes`: after each call, as if Work::wait() blocked the host.
Seen second_step(StageKind stage, Dtype precision, bool synchronizes) {
  FakeNccl fake({}, 22809, kEmulatedStreams);
  const NcclApi api = fake.api();
  std::deque<Watcher> watchers;  // of rank 0, as long as its events
  Seen seen;
  const auto body = [&](Communicator& comm) {
    Rank rank(comm, {}, fake_backends(Place::emulated));
    Backend& gpu = rank.memory.backend();
    OddModel model(OddModelOptions{});
    const auto engine = initialize(model.units(), comm, rank.memory,
                                   {.stage = stage,
                                    .accumulation = 2,
                                    .gradient_clipping = 1,
                                    .precision = precision,
                                    .loss_scale = {.initial_scale_power = 4}});
    const auto step = [&] {
      for (int a = 0; a < 2; ++a) {
        const Batch batch{tokens(rank.memory), tokens(rank.memory)};
        Var loss = engine->forward(
            [&](Tape* tape, UnitObserver& observer) { return model.loss(tape, observer, batch); });
        engine->backward(loss);
        engine->step();
      }
    };
    step();
    (void)engine->loss_of_step();
    comm.barrier(kName).wait();  // no rank still waits for its GPU
    if (comm.rank() == 0) watchers.emplace_back(comm, fake, gpu, synchronizes);
    const int64_t before = gpu.host_waits();
    step();
    if (comm.rank() > 0) return;
    seen = watchers[0].seen;
    seen.host_waits = gpu.host_waits() - before;
  };
  run_on_nccl(kRanksHere, body, within(std::chrono::seconds(60)), {.api = &api});
  if (const std::string misuse = fake.misuse(); !misuse.empty()) throw std::logic_error(misuse);
  return seen;
}

}  // namespace

TEST_CASE(
    "through NCCL a step waits for the GPU at most once, and backward goes on beside its "
    "reductions, in every stage",
    "[nccl]") {
  require_emulator();
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const Dtype precision = GENERATE(Dtype::f32, Dtype::f16);
  CAPTURE(name(stage), name(precision));
  const Seen free = second_step(stage, precision, false),
             blocked = second_step(stage, precision, true);
  CHECK(free.host_waits <= 1);  // 0: the norm had arrived before it was asked for
  CHECK(free.beside > 0);
  CHECK(free.alone == 0);
  CHECK(blocked.host_waits > 1);
  CHECK(blocked.beside == 0);
  CHECK(blocked.alone == free.beside);
}

TEST_CASE("through NCCL data has moved when the compute stream comes to it, not before", "[nccl]") {
  require_emulator();
  FakeNccl fake({}, 22809, kEmulatedStreams);
  const NcclApi api = fake.api();
  std::vector<size_t> issued(kRanksHere), waited_for(kRanksHere), read(kRanksHere);
  std::vector<std::vector<float>> gathered(kRanksHere);
  const auto body = [&](Communicator& comm) {
    const auto r = size_t(comm.rank());
    Rank rank(comm, {}, fake_backends(Place::emulated));
    const Tensor t = rank.filled(2 * 64, float(r));
    Work work = comm.all_gather(t, kName);
    issued[r] = fake.in_flight(comm.rank());
    work.wait();
    kernel::add(t, t, t);
    waited_for[r] = fake.in_flight(comm.rank());
    comm.barrier(kName).wait();  // until here no rank waits for its GPU
    gathered[r] = contents<float>(t);
    read[r] = fake.in_flight(comm.rank());
  };
  run_on_nccl(kRanksHere, body, within(std::chrono::seconds(20)), {.api = &api});
  std::vector<float> expected(64, 0);
  expected.resize(2 * 64, 2);
  for (size_t r = 0; r < kRanksHere; ++r) {
    CHECK(issued[r] == 1);
    CHECK(waited_for[r] == 1);
    CHECK(read[r] == 0);
    CHECK(gathered[r] == expected);
  }
  CHECK(fake.misuse() == "");
}

namespace {

using Program = std::function<void(Communicator&, const Tensor&)>;

// Kernels on both sides of a call, without waiting for them. Each rank adds other values, so that
// the order matters.
Program between_kernels(const Program& call) {
  return [call](Communicator& comm, const Tensor& t) {
    const Tensor own = activation_like(t, {t.numel()});
    kernel::fill(comm.rank() + 0.25, own);
    kernel::add(t, own, t);
    call(comm, t);
    kernel::add(t, own, t);
  };
}

const Program kCalls[] = {
    [](Communicator& comm, const Tensor& t) { comm.all_reduce(t, Reduction::mean, kName).wait(); },
    [](Communicator& comm, const Tensor& t) {
      Work scattered = comm.reduce_scatter(t, Reduction::sum, kName),
           gathered = comm.all_gather(t, kName);
      scattered.wait();
      gathered.wait();
    },
    [](Communicator& comm, const Tensor& t) { comm.broadcast(t, 1, kName).wait(); }};

}  // namespace

TEST_CASE("NCCL's stream waits for the compute stream, and the compute stream waits for it",
          "[nccl]") {
  require_emulator();
  const int ranks = GENERATE(2, 3);
  const bool ordered = GENERATE(true, false);
  for (size_t i = 0; i < std::size(kCalls); ++i) {
    CAPTURE(ranks, ordered, i);
    if (!ordered && i < 2 && ranks > 2) continue;  // other bits
    const auto in = inputs<float>(ranks, ranks * 66);
    const auto nccl =
        after_nccl<float>(in, between_kernels(kCalls[i]), {.ordered = ordered, .emulated = true});
    const auto cpu =
        after<float>(in, between_kernels(kCalls[i]), [](int) { return RankBackends{}; });
    for (size_t r = 0; r < in.size(); ++r) CHECK(same_bits(nccl[r], cpu[r]));
  }
}
