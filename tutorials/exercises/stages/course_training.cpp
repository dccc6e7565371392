#include "tutorials/exercises/stages/course_training.h"

#include <deque>

#include "autograd/ops.h"
#include "nn/data/windows.h"
#include "tensor/random.h"

namespace zl::exercises {
namespace {

constexpr int64_t kRows = 2, kTokens = 5;

// A small language model with what makes sharding go wrong: odd sizes, a weight that is used twice,
// a block that runs twice.
class CourseModel final : public Model {
 public:
  explicit CourseModel(const StageCase& c) : c_(c) {
    const int64_t C = c.channels;
    add_unit("root", {{"embedding", {c.vocab, C}}});
    for (int64_t b = 0; b < c.blocks; ++b) {
      const int64_t H = c.hidden + 2 * b;
      add_unit(str("block", b), {{"up", {C, H}}, {"up_bias", {H}}, {"down", {C, H}}});
    }
  }

  std::string name() const override { return "course"; }
  std::vector<Unit>& units() override { return units_; }

  Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override {
    return run_unit(tape, observer, units_[0], [&] {
      Var x = embedding(batch.inputs, parameter(tape, 0, 0));
      for (int64_t b = 0; b < c_.blocks; ++b) x = block(tape, observer, size_t(b + 1), x);
      if (c_.block_twice) x = block(tape, observer, 1, x);
      return cross_entropy(project(x, parameter(tape, 0, 0)), batch.targets);
    });
  }

 private:
  Var parameter(Tape* tape, size_t unit, size_t i) {
    return Var::parameter(tape, *units_[unit].parameters[i]);
  }
  Var block(Tape* tape, UnitObserver& observer, size_t u, const Var& x) {
    return run_unit(tape, observer, units_[u], [&] {
      const Var up = gelu(linear(x, parameter(tape, u, 0), parameter(tape, u, 1)));
      return add(x, project(up, parameter(tape, u, 2)));
    });
  }
  void add_unit(const std::string& name, const std::vector<std::pair<std::string, Shape>>& all) {
    units_.push_back({.name = name, .parameters = {}, .index = int(units_.size())});
    for (const auto& [what, shape] : all) {
      parameters_.push_back({.name = name + "." + what, .shape = shape, .initial_deviation = 0.3});
      parameters_.back().usable = false;
      units_.back().parameters.push_back(&parameters_.back());
    }
  }

  StageCase c_;
  std::deque<Parameter> parameters_;
  std::vector<Unit> units_;
};

}  // namespace

StageCase stage_case(const CheckOptions& options) {
  Draw draw(options);
  const auto odd = [&](int64_t least, int64_t choices) {
    return least + 2 * draw.between(0, choices - 1);
  };
  StageCase c{.stage = kStages[options.exercise - 4],
              .vocab = odd(43, 10),
              .channels = odd(27, 4),
              .hidden = odd(81, 20),
              .blocks = draw.between(2, 3),
              .seed = options.check_seed()};
  const auto is = [&](const char* name) { return options.is(name); };
  const bool bytes = is("traffic") || is("peak");
  c.reads_weights = !bytes;
  if (bytes || is("three micro-batches")) c.micro_batches = 3;
  if (is("memory at rest")) c.ranks = int(draw.between(3, 5)), c.steps = 0, c.reads_weights = false;
  if (is("one rank")) c.ranks = 1;
  if (is("bits at 2 ranks")) c.ranks = 2;
  if (is("three micro-batches")) c.bucket = 1 << 20;  // several units at once
  if (is("bits at 3 ranks")) c.ranks = draw.between(0, 1) == 0 ? 3 : 5, c.max_norm = 0.05;
  if (is("a unit that runs twice"))
    c.block_twice = true, c.micro_batches = 2, c.dtype = Dtype::bf16;
  return c;
}

std::unique_ptr<BatchSource> course_data(const StageCase& c) {
  const PhiloxStream random{c.seed, 0};
  std::string text;
  for (uint64_t i = 0; i < 1000; ++i) text += char(random.uniform(i) * double(c.vocab));
  return std::make_unique<Windows>(TokenData::of_text("course", text), kTokens);
}

TrainingSpec training_spec(const StageCase& c, const BatchSource& data) {
  TrainingSpec spec;
  spec.make_model = [&c] { return std::make_unique<CourseModel>(c); };
  spec.engine.stage = c.stage;
  spec.engine.accumulation = c.micro_batches;
  spec.engine.gradient_clipping = c.max_norm;
  spec.engine.precision = c.dtype;
  spec.engine.optimizer.lr = 0.02;
  spec.engine.optimizer.weight_decay = 0.1;
  spec.engine.reduce_bucket_size = spec.engine.allgather_bucket_size = c.bucket;
  spec.engine.seed = c.seed;
  spec.micro_batch = kRows;
  spec.steps = c.steps;
  spec.ranks = c.ranks;
  spec.poison = true;
  spec.rank_options.timeout = kRankTimeout;
  spec.rank_options.grace = kRankGrace;
  spec.data = &data;
  spec.check_calls = true;
  return spec;
}

}  // namespace zl::exercises
