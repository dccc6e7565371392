// The training runs with which a student's stage is checked. The process that measures and the one
// that judges derive the same case from the seed.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string_view>

#include "autograd/ops.h"
#include "nn/data/windows.h"
#include "nn/model.h"
#include "stages/train/trainer.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

// A run of three steps, on three ranks if the check does not say otherwise: at rest none is made,
// and what a rank keeps is judged; bits at 2, 3 or 5 ranks, the last two with clipping; three
// micro-batches with buckets of several units; a unit that runs twice, in bf16.
struct StageCase {
  TrainingSpec spec;                        // on the CPU; the measuring side changes that
  std::shared_ptr<const BatchSource> data;  // of the spec
  bool reads_weights = true;  // false: nothing but the run itself is in the ledger and the log
};

// One call of a student's stage function: what it allocated and freed.
struct StageCall {
  char function[28] = "";  // "reduce_gradient", "the constructor"; "Work::wait" of what it returned
  int unit = -1;           // -1: of no unit
  int64_t event = 0;       // of the rank's event stream, from 0
  int64_t waits = 0;       // for collectives of the stage
  // [B] by which each use grew, and by which it was larger at the peak inside the call.
  std::array<int64_t, kMemoryUses> grown{}, peak{};

  bool is(std::string_view name) const { return name == function; }
};

// What a rank sent in the whole run: a row for each purpose, collective and group. A purpose that
// is no number of the enumeration, which a student's code may choose, is `scales`.
struct SentRow {
  Purpose purpose{};
  Collective collective{};
  Traffic traffic;
};

// A small language model with what makes sharding go wrong: odd sizes, no two blocks of one size, a
// weight that is used twice, a block that may run twice.
class CourseModel final : public Model {
 public:
  // [n] Odd, so that parameters and units need padding.
  struct Sizes {
    int64_t vocab, channels, hidden, blocks;
    bool twice;  // block 0 runs again after the last one
  };
  explicit CourseModel(const Sizes& sizes) : sizes_(sizes) {
    const int64_t C = sizes.channels;
    add_unit("root", {{"embedding", {sizes.vocab, C}}});
    for (int64_t b = 0, H = sizes.hidden; b < sizes.blocks; ++b, H += 2)
      add_unit(str("block", b), {{"up", {C, H}}, {"up_bias", {H}}, {"down", {C, H}}});
  }

  std::string name() const override { return "course"; }
  std::vector<Unit>& units() override { return units_; }

  Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override {
    const auto parameter = [&](size_t unit, size_t i) {
      return Var::parameter(tape, *units_[unit].parameters[i]);
    };
    const auto block = [&](size_t u, const Var& x) {
      return run_unit(tape, observer, units_[u], [&] {
        const Var up = gelu(linear(x, parameter(u, 0), parameter(u, 1)));
        return add(x, project(up, parameter(u, 2)));
      });
    };
    return run_unit(tape, observer, units_[0], [&] {
      Var x = embedding(batch.inputs, parameter(0, 0));
      for (size_t u = 1; u < units_.size(); ++u) x = block(u, x);
      if (sizes_.twice) x = block(1, x);
      return cross_entropy(project(x, parameter(0, 0)), batch.targets);
    });
  }

 private:
  void add_unit(const std::string& name, const std::vector<std::pair<std::string, Shape>>& all) {
    units_.push_back({.name = name, .parameters = {}, .index = int(units_.size())});
    for (const auto& [what, shape] : all) {
      parameters_.push_back({.name = name + "." + what, .shape = shape, .initial_deviation = 0.3});
      parameters_.back().usable = false;
      units_.back().parameters.push_back(&parameters_.back());
    }
  }

  const Sizes sizes_;
  std::deque<Parameter> parameters_;
  std::vector<Unit> units_;
};

// Of exercise 05, 06 or 07.
inline StageCase stage_case(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  const bool bytes = is("traffic") || is("peak"), at_rest = is("memory at rest"),
             three = is("three micro-batches");
  const auto odd = [&](int64_t least, int64_t choices) {
    return least + 2 * draw.between(0, choices - 1);
  };
  const CourseModel::Sizes sizes{.vocab = odd(43, 10),
                                 .channels = odd(27, 4),
                                 .hidden = odd(81, 20),
                                 .blocks = draw.between(2, 3),
                                 .twice = is("a unit that runs twice")};
  StageCase c{.reads_weights = !bytes && !at_rest};
  TrainingSpec& spec = c.spec;
  spec.make_model = [=] { return std::make_unique<CourseModel>(sizes); };
  spec.ranks = at_rest                 ? int(draw.between(3, 5))
               : is("one rank")        ? 1
               : is("bits at 2 ranks") ? 2
               : is("bits at 3 ranks") ? 3 + 2 * int(draw.between(0, 1))
                                       : 3;
  spec.steps = at_rest ? 0 : 3;
  spec.micro_batch = 2;
  spec.poison = spec.check_calls = true;
  spec.rank_options.timeout = kRankTimeout;
  spec.rank_options.grace = kRankGrace;
  Options& engine = spec.engine;
  engine.stage = kStages[options.exercise - 4];
  engine.accumulation = bytes || three ? 3 : sizes.twice ? 2 : 1;
  engine.gradient_clipping = is("bits at 3 ranks") ? 0.05 : 0;
  engine.precision = sizes.twice ? Dtype::bf16 : Dtype::f32;
  engine.optimizer.lr = 0.02;
  engine.optimizer.weight_decay = 0.1;
  engine.reduce_bucket_size = engine.allgather_bucket_size = three ? 1 << 20 : 1;
  engine.seed = options.check_seed();
  std::string text;
  for (int i = 0; i < 1000; ++i) text += char(draw.between(0, sizes.vocab - 1));
  c.data = std::make_shared<Windows>(TokenData::of_text("course", text), 5);
  spec.data = c.data.get();
  return c;
}

}  // namespace zl::exercises
