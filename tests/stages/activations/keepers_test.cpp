// How the inputs of checkpointed units wait for backward: the same bits on the device and on the
// host, and exactly the bytes and moves of the closed formulas.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/nn/scratch_folder.h"
#include "tests/pairwise.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec checkpointed_spec(StageKind stage) {
  return {.stage = stage,
          .ranks = 3,
          .micro_batches = 2,
          .steps = 2,
          .model = {.blocks = 3, .recompute = Recompute::full}};
}

}  // namespace

TEST_CASE("how inputs wait changes no bit, and has the bytes and moves of its formula",
          "[stages]") {
  SettingsRow pick = any_pair({4, 2, 2});
  StageRunSpec spec = checkpointed_spec(pick.next_stage());
  spec.options.precision = pick.next({Dtype::f32, Dtype::bf16});
  if (pick.next({false, true}))
    spec.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 500};
  CAPTURE(name(spec.stage), name(spec.options.precision), spec.options.overlap.overlap_comm);
  spec.model.recompute = Recompute::none;
  const StageRun all = run_stage(spec);
  spec.model.recompute = Recompute::full;
  for (const bool on_host : {false, true}) {
    CAPTURE(on_host);
    spec.cpu_checkpointing = on_host;
    const StageRun run = run_stage(spec);
    CHECK(run.same_bits(all));
    CHECK(off_the_prediction(spec, run) == "");
    CHECK(off_the_traffic(spec, run) == "");
    CHECK(off_the_moves(spec, run) == "");
    CHECK(run.live_at_end == std::vector<int64_t>(3, 0));
    // Three blocks keep 2 x 5 x 7 = 70 elements each.
    const int64_t kept = 3 * 70 * size_of(spec.options.precision);
    CHECK(run.host_ledgers[1].peak(MemoryUse::activation) == (on_host ? kept : 0));
    CHECK(run.host_ledgers[1].live(MemoryUse::activation) == 0);
    CHECK(run.moves[1].of(Move::device_to_host).bytes == (on_host ? 2 * 2 * kept : 0));
    CHECK(run.moves[1].of(Move::host_to_device) == run.moves[1].of(Move::device_to_host));
  }
  spec.data_seed += 1;
  CHECK_FALSE(run_stage(spec).same_bits(all));
}

TEST_CASE("inputs wait for units that run twice, tied weights and unused parameters", "[stages]") {
  SettingsRow pick = any_pair({4, 2, 2});
  StageRunSpec spec = checkpointed_spec(pick.next_stage());
  spec.model = {.blocks = 2,
                .tied = pick.next({true, false}),
                .block_twice = true,
                .unused_parameter = true,
                .unused_unit = true};
  const StageRun all = run_stage(spec);
  spec.model.recompute = Recompute::full;
  spec.cpu_checkpointing = pick.next({false, true});
  CAPTURE(name(spec.stage), spec.model.tied, spec.cpu_checkpointing);
  const StageRun run = run_stage(spec);
  CHECK(run.same_bits(all));
  CHECK(off_the_moves(spec, run).empty());
}

TEST_CASE("inputs that wait on the host need host memory", "[stages]") {
  run_ranks(1, [](Communicator& comm) {
    Memory memory({}, cpu_backend(), comm.events());
    OddModel model({.recompute = Recompute::full});
    CHECK(sentence_of([&] {
            initialize(model.units(), comm, memory, {.cpu_checkpointing = true});
          }) == "cpu_checkpointing needs host memory: pass a host Memory to initialize()");
  });
}

TEST_CASE("an evaluation keeps no input, wherever those of training wait", "[stages]") {
  const Options options{.stage = any_stage(), .cpu_checkpointing = true};
  std::vector<double> evaluated(3), trained(3);
  std::vector<int64_t> kept_by_evaluation(3), kept_by_training(3), left(3);
  run_ranks(3, [&](Communicator& comm) {
    Memory memory({}, cpu_backend(), comm.events());
    Memory host({}, cpu_backend(), comm.events(), {.pool = Pool::host});
    OddModel model({.recompute = Recompute::full});
    const auto engine = initialize(model.units(), comm, memory, options, &host);
    const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {2, 5}, Dtype::i32);
    const Engine::Forward build = [&](Tape* tape, UnitObserver& observer) {
      return model.loss(tape, observer, {ids, ids});
    };
    const size_t rank = size_t(comm.rank());
    evaluated[rank] = engine->evaluate(build);
    kept_by_evaluation[rank] = host.ledger().peak_total();
    Var loss = engine->forward(build);
    trained[rank] = kernel::read(loss.value());
    kept_by_training[rank] = host.ledger().live_total();
    engine->backward(loss);
    left[rank] = host.ledger().live_total();
  });
  CHECK(evaluated == trained);
  CHECK(kept_by_evaluation == std::vector<int64_t>(3, 0));
  CHECK(kept_by_training == std::vector<int64_t>(3, 2 * 70 * 4));  // of 2 blocks
  CHECK(left == std::vector<int64_t>(3, 0));
}
