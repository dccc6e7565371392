// How the inputs of checkpointed units wait for backward: the same bits in every way, and exactly
// the bytes, moves and all-gathers of the closed formulas.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "stages/schedule/input_keepers.h"
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

// The keeper that a test puts in place of the engine's own.
TrainingResult train_with(const StageRunSpec& spec, const InputKeeper& keeper) {
  const auto data = odd_data(spec);
  return run_training(training_spec(spec, *data), {.at_start = [&](Trainer& t) {
                        static_cast<StepSchedule&>(t.engine().observer()).keep_inputs(keeper);
                      }});
}

std::string refusal(const StageRunSpec& spec) {
  return sentence_of([&] { run_stage(spec); });
}

}  // namespace

TEST_CASE("how inputs wait changes no bit, and has the bytes, moves and traffic of its formula",
          "[stages]") {
  SettingsRow pick = any_pair({4, 2, 2, 2});
  StageRunSpec spec = checkpointed_spec(pick.next_stage());
  spec.options.precision = pick.next({Dtype::f32, Dtype::bf16});
  spec.replicated = pick.next({false, true});
  if (pick.next({false, true}))
    spec.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 500};
  CAPTURE(name(spec.stage), name(spec.options.precision), spec.replicated,
          spec.options.overlap.overlap_comm);
  spec.model.recompute = Recompute::none;
  const StageRun all = run_stage(spec);
  spec.model.recompute = Recompute::full;
  for (const bool on_host : {false, true})
    for (const bool partitioned : {false, true}) {
      if (partitioned && !spec.replicated) continue;
      CAPTURE(on_host, partitioned);
      spec.cpu_checkpointing = on_host;
      spec.partition_activations = partitioned;
      const StageRun run = run_stage(spec);
      CHECK(run.same_bits(all));
      CHECK(off_the_prediction(spec, run) == "");
      CHECK(off_the_traffic(spec, run) == "");
      CHECK(off_the_moves(spec, run) == "");
      CHECK(run.live_at_end == std::vector<int64_t>(3, 0));
      // Three blocks keep 2 x 5 x 7 = 70 elements each; of 3 ranks each keeps 24.
      const int64_t e = size_of(spec.options.precision), kept = 3 * (partitioned ? 24 : 70) * e;
      CHECK(run.host_ledgers[1].peak(MemoryUse::activation) == (on_host ? kept : 0));
      CHECK(run.host_ledgers[1].live(MemoryUse::activation) == 0);
      CHECK(run.moves[1].of(Move::device_to_host).bytes == (on_host ? 2 * 2 * kept : 0));
      CHECK(run.moves[1].of(Move::host_to_device) == run.moves[1].of(Move::device_to_host));
      const CommunicationLog::Rows& rows = run.logs[1].rows();
      const auto gathers = rows.find({Collective::all_gather, Purpose::activation});
      REQUIRE((gathers != rows.end()) == partitioned);
      if (!partitioned) continue;
      const int64_t calls = 2 * 2 * 3;  // steps, micro-batches, blocks
      CHECK(gathers->second ==
            Traffic{calls, calls * 72, calls * 2 * 72 * e, 3});  // a rank sends 2/3 of 72
    }
  spec.data_seed += 1;
  CHECK_FALSE(run_stage(spec).same_bits(all));
}

TEST_CASE("inputs wait for units that run twice, tied weights and unused parameters", "[stages]") {
  SettingsRow pick = any_pair({4, 2, 2, 2});
  StageRunSpec spec = checkpointed_spec(pick.next_stage());
  spec.model = {.blocks = 2,
                .tied = pick.next({true, false}),
                .block_twice = true,
                .unused_parameter = true,
                .unused_unit = true};
  spec.replicated = true;
  const StageRun all = run_stage(spec);
  spec.model.recompute = Recompute::full;
  spec.cpu_checkpointing = pick.next({false, true});
  spec.partition_activations = pick.next({false, true});
  CAPTURE(name(spec.stage), spec.model.tied, spec.cpu_checkpointing, spec.partition_activations);
  const StageRun run = run_stage(spec);
  CHECK(run.same_bits(all));
  CHECK(off_the_moves(spec, run).empty());
}

TEST_CASE("a keeper that brings back another input changes the weights", "[stages]") {
  const StageRunSpec spec = checkpointed_spec(any_stage());
  const auto losses = [&](const InputKeeper& keeper) {
    std::vector<double> losses;
    for (const StepRecord& step : train_with(spec, keeper).steps) losses.push_back(step.loss);
    return losses;
  };
  const auto brings = [](bool another) -> InputKeeper {
    return [another](Tensor x) -> Kept {
      return [x, another] {
        const Tensor back = activation_like(x, x.shape());
        kernel::copy(x, back);
        if (another) kernel::fill(0.5, back.slice(3, {1}));
        return back;
      };
    };
  };
  const std::vector<double> right = losses({});
  CHECK(losses(brings(false)) == right);
  const std::vector<double> wrong = losses(brings(true));
  CHECK(wrong[0] == right[0]);  // before the first update
  CHECK(wrong[1] != right[1]);
}

// n elements over 3 ranks: the last parts are short or empty. The mixture that ranks with different
// inputs get is why they may not partition them.
TEST_CASE("every number of elements is partitioned and brought back", "[stages]") {
  const int64_t n = GENERATE(1, 2, 3, 4, 7, 9);
  std::vector<std::string> wrong(3);
  std::vector<int64_t> kept_bytes(3);
  std::vector<std::vector<float>> mixture(3);
  run_ranks(3, [&](Communicator& comm) {
    Memory memory({}, cpu_backend(), comm.events());
    Memory host({}, cpu_backend(), comm.events(), {.pool = Pool::host});
    std::vector<float> values(size_t(n), 0.0f);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i + 1);
    const auto keep = [&](const std::vector<float>& of) {
      Tensor x = Tensor::empty(memory, MemoryUse::activation, {1, n});
      kernel::upload<float>(of, x);
      return partitioned_inputs(comm, inputs_on_host(host))(std::move(x));
    };
    const size_t rank = size_t(comm.rank());
    const Kept kept = keep(values);
    kept_bytes[rank] = host.ledger().live(MemoryUse::activation);
    const int64_t on_device = memory.ledger().live_total();
    const Tensor back = kept();
    if (kernel::download<float>(back) != values || back.shape() != Shape{1, n})
      wrong[rank] = "another input";
    if (on_device != 0) wrong[rank] += " something stays on the device";
    for (float& v : values) v = float(comm.rank());
    mixture[rank] = kernel::download<float>(keep(values)());
  });
  CAPTURE(n);
  CHECK(wrong == std::vector<std::string>(3));
  CHECK(kept_bytes == std::vector<int64_t>(3, (n + 2) / 3 * 4));
  std::vector<float> owners(size_t(n), 0.0f);
  for (size_t i = 0; i < owners.size(); ++i) owners[i] = float(int64_t(i) / ((n + 2) / 3));
  CHECK(mixture == std::vector<std::vector<float>>(3, owners));
}

TEST_CASE("ranks that read different micro-batches may not partition activations, and learn why",
          "[stages]") {
  StageRunSpec spec = checkpointed_spec(any_stage());
  spec.partition_activations = true;
  const std::string text = refusal(spec);
  CAPTURE(text);
  for (const char* part : {"the 3 ranks read different micro-batches", "exists on one rank only",
                           "cpu_checkpointing", "\"replicated_micro_batches\": true"})
    CHECK(text.find(part) != std::string::npos);
  spec.ranks = 1;  // nothing to partition over
  const StageRun one = run_stage(spec);
  CHECK(off_the_traffic(spec, one) == "");
  spec.replicated = true;
  CHECK(run_stage(spec).same_bits(one));
  spec.ranks = 3;
  CHECK(refusal(spec).empty());
  spec.options.reproducible = true;
  CHECK(refusal(spec).find("have no reproducible sums") != std::string::npos);
}

// The mean of two equal gradients is exact.
TEST_CASE("two ranks with replicated micro-batches train as one rank", "[stages]") {
  StageRunSpec spec = checkpointed_spec(any_stage());
  spec.max_norm = 0;  // the norm adds squares in another order
  spec.ranks = 1;
  const StageRun one = run_stage(spec);
  spec.ranks = 2;
  CHECK(run_stage(spec).weights != one.weights);
  spec.replicated = true;
  const StageRun two = run_stage(spec);
  CHECK(two.weights == one.weights);
  CHECK(two.losses == one.losses);
}

TEST_CASE("an evaluation keeps no input, wherever those of training wait", "[stages]") {
  const Options options{.stage = any_stage(),
                        .cpu_checkpointing = true,
                        .partition_activations = true,
                        .replicated_micro_batches = true};
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
  CHECK(kept_by_training == std::vector<int64_t>(3, 2 * 24 * 4));  // of 2 blocks
  CHECK(left == std::vector<int64_t>(3, 0));
}
