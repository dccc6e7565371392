#include "tests/stages/explored/explored_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <sstream>

#include "stages/partition.h"
#include "stages/train/gpt_spec.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl::test {
namespace {

constexpr int64_t kWidth = 8, kTokens = 4, kVocabulary = 17;
constexpr int64_t kBlock = 12 * kWidth * kWidth + 13 * kWidth;  // [n]
constexpr int64_t kRoot = (kVocabulary + kTokens + 2) * kWidth;

GptConfig model_of(const ExploredCase& c) {
  return {
      .layers = c.layers, .heads = 2, .width = kWidth, .block_size = kTokens, .vocab = kVocabulary};
}

class Tokens final : public BatchSource {
 public:
  Shape input_row() const override { return {kTokens}; }
  Shape target_row() const override { return {kTokens}; }
  void fill_rows(int64_t first, std::span<int32_t> inputs,
                 std::span<int32_t> targets) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = token(first * kTokens + int64_t(i));
      targets[i] = token(first * kTokens + int64_t(i) + 1);
    }
  }

 private:
  static int32_t token(int64_t i) {
    return int32_t(PhiloxStream{7, 0}.uniform(uint64_t(i)) * double(kVocabulary));
  }
};

template <class T>
bool same_numbers(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

bool has_nan(const auto& values) {
  return std::ranges::any_of(values, [](auto v) { return std::isnan(v); });
}

}  // namespace

// ---- what must hold --------------------------------------------------------------------------

ExploredTraining::ExploredTraining(const ExploredCase& explored_case, StageKind stage)
    : case_(explored_case), stage_(stage) {
  ExploredCase plain = case_;
  plain.overlap = {};
  without_overlap_ = train(plain, stage, {});
  try {
    with_overlap_ = train(case_, stage, {});
  } catch (const std::exception&) {  // a mutant; explored ranks find it
  }
}

std::string ExploredTraining::wrong_with(Schedule& schedule) {
  ExploredRanks explored(case_.ranks, schedule, {});
  std::string wrong;
  try {
    const Trained trained = train(case_, stage_, {.explored = &explored, .callbacks = {}});
    wrong = compare_results(trained);
    if (wrong.empty()) wrong = compare_counts(trained);
    if (wrong.empty()) wrong = compare_outcomes(explored);
  } catch (const RaceFound& error) {
    wrong = str("race: ", error.what());
  } catch (const std::exception& error) {
    wrong = str(explored.stuck() ? "deadline: " : "error: ", error.what());
  }
  steps_ = explored.steps();
  calls_ = explored.carried_out();
  return wrong;
}

std::string ExploredTraining::compare_results(const Trained& run) const {
  const Trained& expected = without_overlap_;
  const bool same = same_numbers(run.losses, expected.losses) &&
                    same_numbers(run.norms, expected.norms) &&
                    same_numbers(run.weights, expected.weights);
  if (same) return "";
  if (has_nan(run.losses) || has_nan(run.norms) || has_nan(run.weights))
    return "poison: a loss, norm or weight is NaN";
  return str("bits: losses, norms or weights differ; the last loss is ", run.losses.back(),
             ", not ", expected.losses.back());
}

std::string ExploredTraining::compare_counts(const Trained& run) const {
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const RankReport& a = run.ranks[r];
    const bool fewer = case_.overlap.max_reuse_distance > 0;  // gathers, by design
    const Trained& counted = fewer ? with_overlap_ : without_overlap_;
    if (r < counted.ranks.size() && a.log.rows() != counted.ranks[r].log.rows())
      return str("traffic: other calls or bytes on rank ", r);
    for (int i = 0; i < kMemoryUses && r < with_overlap_.ranks.size(); ++i) {
      const RankReport& b = with_overlap_.ranks[r];
      const MemoryUse use = MemoryUse(i);
      if (a.rest.peak(use) != b.rest.peak(use) || a.rest.live(use) != b.rest.live(use))
        return str("memory: rank ", r, " has ", a.rest.live(use), " B of ", name(use),
                   " after the steps and ", a.rest.peak(use), " B at its peak, not ",
                   b.rest.live(use), " and ", b.rest.peak(use));
    }
  }
  return "";
}

std::string ExploredTraining::compare_outcomes(const ExploredRanks& ranks) const {
  for (int r = 0; r < case_.ranks; ++r) {
    const RankOutcome& outcome = ranks.outcome(r);
    if (outcome.live_bytes != 0)
      return str("memory: rank ", r, " did not free ", outcome.live_bytes, " B");
    if (outcome.most_buckets > 1)
      return str("flight: ", outcome.most_buckets, " buckets are in flight at one time");
    if (outcome.most_gathers > allowed_gathers())
      return str("flight: ", outcome.most_gathers, " all-gathers are in flight at one time, not ",
                 allowed_gathers());
  }
  return "";
}

// In stage 3 those of the shortest run of next units that has prefetch_bucket_size elements, or the
// unit's own. In stages 1 and 2 those of all units, after an update.
int ExploredTraining::allowed_gathers() const {
  if (stage_ == StageKind::ddp) return 0;
  if (stage_ != StageKind::zero3) return int(case_.layers) + 1;
  Gpt model(model_of(case_));
  const int64_t block =
      Partition(model.units()[1], case_.ranks,
                case_.reproducible ? kernel::kSquaresBlock : Partition::kAlignment)
          .full();
  return int(std::max<int64_t>(1, (case_.overlap.prefetch_bucket_size + block - 1) / block));
}

// ---- runs that have a name -------------------------------------------------------------------

std::span<const ExploredCase> explored_cases() {
  static const std::vector<ExploredCase> all = [] {
    const Overlap reductions{.overlap_comm = true};
    Overlap one = reductions, far = reductions, last = reductions, kept = reductions;
    one.prefetch_bucket_size = 1;
    far.prefetch_bucket_size = 2 * kBlock;
    last.prefetch_bucket_size = 1;
    last.max_reuse_distance = 1;
    kept.prefetch_bucket_size = kBlock;
    kept.max_reuse_distance = 3 * kBlock;
    kept.max_live_parameters = kRoot + 2 * kBlock + 16;
    Overlap only_gathers = last;
    only_gathers.overlap_comm = false;
    const int64_t more_than_one = kBlock + kBlock / 2;
    return std::vector<ExploredCase>{
        {.ranks = 2, .overlap = reductions},
        {.ranks = 3, .accumulation = 2, .bucket = more_than_one, .overlap = far},
        {.ranks = 2, .accumulation = 2, .overlap = one},
        {.ranks = 3, .overlap = kept},
        {.ranks = 2, .accumulation = 2, .bucket = more_than_one, .overlap = last},
        {.ranks = 2, .accumulation = 2, .overlap = only_gathers},
        {.ranks = 2, .layers = 3, .overlap = far, .dtype = Dtype::bf16},
        {.ranks = 3, .layers = 3, .bucket = more_than_one, .overlap = kept},
        {.ranks = 2, .overlap = far, .recompute = Recompute::full},
        {.ranks = 3, .accumulation = 2, .overlap = one, .reproducible = true},
        {.ranks = 2, .accumulation = 2, .overlap = last, .dtype = Dtype::bf16, .offload = true},
    };
  }();
  return all;
}

std::string ExploredRun::text() const {
  return str(name(stage), " ", number, " ", schedule.text());
}

ExploredRun parse_run(const std::string& text) {
  std::istringstream words(text);
  std::string stage;
  ExploredRun run;
  words >> stage >> run.number >> run.schedule.kind;
  if (run.schedule.kind == "pct") words >> run.schedule.seed;
  bool known = false;
  for (const StageKind kind : kStages)
    if (name(kind) == stage) run.stage = kind, known = true;
  require_input(words && known && run.number < explored_cases().size(), "'", text,
                "' is no explored run; write for example \"zero3 2 pct 4711\" or \"ddp 0 lazy\"");
  return run;
}

Trained train(const ExploredCase& c, StageKind stage, const TrainOptions& options) {
  static const Tokens tokens;
  GptTrainingSpec spec = gpt_spec(model_of(c), kTokens, c.recompute);
  spec.engine.stage = stage;
  spec.engine.accumulation = c.accumulation;
  spec.engine.gradient_clipping = 0.5;
  spec.engine.optimizer.lr = 0.05;
  spec.engine.precision = c.dtype;
  if (c.dtype != Dtype::f32) spec.engine.grad_accum_dtype = Dtype::f32;
  spec.engine.reproducible = c.reproducible;
  spec.engine.offload_optimizer = c.offload ? OffloadDevice::cpu : OffloadDevice::none;
  spec.engine.reduce_bucket_size = spec.engine.allgather_bucket_size = c.bucket;
  spec.engine.overlap = c.overlap;
  spec.micro_batch = 1;
  spec.steps = c.steps;
  spec.ranks = c.ranks;
  spec.poison = true;
  spec.data = &tokens;
  spec.check_calls = true;
  if (options.explored) {
    spec.run_ranks = options.explored->runner();
    spec.backends = options.explored->checked_backends();
  }
  Trained trained;
  TrainingCallbacks callbacks = options.callbacks;
  callbacks.at_end = [&](Trainer& trainer) {
    const std::vector<float> weights = collect_weights(trainer);
    if (trainer.comm().rank() == 0) trained.weights = weights;
  };
  TrainingResult result = run_training(spec, callbacks);
  for (const StepRecord& step : result.steps) {
    trained.losses.push_back(step.loss);
    trained.norms.push_back(step.grad_norm);
  }
  trained.ranks = std::move(result.ranks);
  return trained;
}

std::string wrong_with(const ExploredRun& run) {
  struct Known {
    ExploredTraining training;
    int64_t steps = 0;  // k
  };
  static std::map<std::pair<StageKind, size_t>, Known> all;
  const ExploredCase& c = explored_cases()[run.number];
  auto found = all.find({run.stage, run.number});
  if (found == all.end()) {
    found = all.insert({{run.stage, run.number}, {ExploredTraining(c, run.stage)}}).first;
    Eager eager;
    (void)found->second.training.wrong_with(eager);
    found->second.steps = found->second.training.steps();
  }
  return found->second.training.wrong_with(
      *make_schedule(run.schedule, c.ranks, found->second.steps));
}

// ---- exceptions ------------------------------------------------------------------------------

namespace {

class TestException : public std::runtime_error {
 public:
  TestException() : std::runtime_error("thrown by the test") {}
};

bool is_communication_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::string what(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

std::optional<std::string> wrong_after(const Failure& failure, const ExploredCase& c,
                                       StageKind stage, Schedule& schedule) {
  bool thrown = false;
  int64_t left = failure.at;
  ExploredRanks* ranks = nullptr;
  const auto throw_once = [&](int rank, const Event& e) {
    if (rank != failure.rank || thrown || failure.allocation) return;
    if (e.kind == EventKind::release) return;  // of a destructor
    if (!ranks->in_flight(rank) || left-- > 0) return;
    thrown = true;
    throw TestException();
  };
  ExploredRanks explored(c.ranks, schedule, {.on_event = throw_once});
  ranks = &explored;
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& trainer) {
    if (failure.allocation && trainer.comm().rank() == failure.rank)
      trainer.memory().fail_at(failure.at + 1);
  };
  try {
    train(c, stage, {.explored = &explored, .callbacks = callbacks});
    if (!thrown) return std::nullopt;
    return "error: the exception did not arrive";
  } catch (const RaceFound& error) {
    return str("race: ", error.what());
  } catch (const TestException&) {
  } catch (const OutOfMemory&) {
  } catch (const std::exception& error) {
    return str(explored.stuck() ? "deadline: " : "error: ", error.what());
  }
  if (explored.stuck()) return "deadline: a rank waits for a call that cannot happen";
  for (int r = 0; r < c.ranks; ++r) {
    const RankOutcome& outcome = explored.outcome(r);
    if (outcome.live_bytes != 0)
      return str("memory: rank ", r, " did not free ", outcome.live_bytes, " B");
    if (r != failure.rank && outcome.error && !is_communication_error(outcome.error))
      return str("error: rank ", r, " failed with: ", what(outcome.error));
  }
  return "";
}

}  // namespace zl::test
