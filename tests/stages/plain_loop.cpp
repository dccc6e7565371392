#include "tests/stages/plain_loop.h"

#include <cmath>

#include "optim/clip.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl::test {
namespace {

using Floats = std::vector<float>;

int64_t padded(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// One unit as plain vectors, laid out as the design says: parameters at multiples of 16 elements,
// the unit padded to a multiple of 16 per rank.
struct PlainUnit {
  Unit* unit;
  std::vector<int64_t> offsets;
  int64_t size = 0;
  Floats weights, gradient;  // the mean over ranks, summed over micro-batches
  std::unique_ptr<FlatOptimizer> optimizer;
};

class PlainLoop {
 public:
  PlainLoop(const StageRunSpec& spec, AddFirst order)
      : spec_(spec), order_(order), data_(odd_data(spec)), model_(spec.model) {
    for (Unit& unit : model_.units()) {
      PlainUnit u{.unit = &unit};
      for (const Parameter* p : unit.parameters) {
        u.offsets.push_back(padded(u.size, 16));
        u.size = u.offsets.back() + p->numel();
      }
      u.size = padded(u.size, 16 * spec.ranks);
      u.weights.assign(size_t(u.size), 0);
      u.optimizer = make_optimizer(memory_, u.size, Dtype::f32, spec.options.optimizer);
      for (size_t i = 0; i < unit.parameters.size(); ++i) initialize(*unit.parameters[i]);
      units_.push_back(std::move(u));
    }
    for (PlainUnit& u : units_)
      each_parameter(u, [&](Parameter& p, size_t at) {
        const auto values = p.data.data<float>();
        std::copy(values.begin(), values.end(), u.weights.begin() + int64_t(at));
      });
  }

  PlainRun train() {
    PlainRun run;
    for (int64_t step = 0; step < spec_.steps; ++step) {
      run.losses.push_back(add_gradients(step));
      const double norm = std::sqrt(squared_norm()) / spec_.micro_batches;
      run.norms.push_back(norm);
      update(float(clip_factor(norm, spec_.max_norm) / spec_.micro_batches));
    }
    for (PlainUnit& u : units_)
      each_parameter(u, [&](Parameter& p, size_t at) {
        run.weights.insert(run.weights.end(), u.weights.begin() + int64_t(at),
                           u.weights.begin() + int64_t(at) + p.numel());
      });
    return run;
  }

 private:
  static void each_parameter(PlainUnit& u,
                             const std::function<void(Parameter&, size_t at)>& visit) {
    for (size_t i = 0; i < u.offsets.size(); ++i)
      visit(*u.unit->parameters[i], size_t(u.offsets[i]));
  }

  void initialize(Parameter& p) {
    p.data = Tensor::zeros(memory_, MemoryUse::parameter, p.shape);
    p.grad = Tensor::zeros(memory_, MemoryUse::gradient, p.shape);
    kernel::normal({spec_.options.seed, fnv1a(p.name), p.initial_mean, p.initial_deviation}, 0,
                   p.data);
  }

  // Adds the gradient of one micro-batch to each Parameter::grad. Returns its loss.
  double backward(int64_t j) {
    std::vector<int32_t> values(size_t(2 * numel(data_->input_row())));
    std::vector<int32_t> targets(values.size());
    data_->fill_rows(2 * j, values, targets);
    const auto upload = [&](const std::vector<int32_t>& from) {
      const Tensor t =
          Tensor::empty(memory_, MemoryUse::activation, {2, numel(data_->input_row())}, Dtype::i32);
      kernel::upload<int32_t>(from, t);
      return t;
    };
    Tape tape;
    UnitObserver none;
    const Var loss = model_.loss(&tape, none, {upload(values), upload(targets)});
    const double value = kernel::read(loss.value(), 0);
    Tensor seed = Tensor::empty(memory_, MemoryUse::activation, {1});
    kernel::fill(1, seed);
    tape.backward(loss, seed);
    return value;
  }

  // The gradients of all units since the last call, flat; clears them.
  std::vector<Floats> take_gradients() {
    std::vector<Floats> all;
    for (PlainUnit& u : units_) {
      all.emplace_back(size_t(u.size), 0.0f);
      each_parameter(u, [&](Parameter& p, size_t at) {
        const auto grad = p.grad.data<float>();
        std::copy(grad.begin(), grad.end(), all.back().begin() + int64_t(at));
        kernel::fill(0, p.grad);
      });
    }
    return all;
  }

  void add_mean_over_ranks(const std::vector<std::vector<Floats>>& of_ranks) {
    for (size_t u = 0; u < units_.size(); ++u)
      for (size_t i = 0; i < units_[u].gradient.size(); ++i) {
        float sum = 0;
        for (const auto& rank : of_ranks) sum += rank[u][i];
        units_[u].gradient[i] += sum / float(spec_.ranks);
      }
  }

  // All micro-batches of a step. Returns the mean loss.
  double add_gradients(int64_t step) {
    const int64_t A = spec_.micro_batches, N = spec_.ranks;
    for (PlainUnit& u : units_) u.gradient.assign(size_t(u.size), 0);
    std::vector<double> losses(size_t(N), 0);
    const auto run = [&](int64_t a, int64_t r) {
      losses[size_t(r)] += backward(spec_.first_micro_batch + (step * A + a) * N + r);
    };
    std::vector<std::vector<Floats>> of_ranks(static_cast<size_t>(N));
    if (order_ == AddFirst::micro_batches) {
      for (int64_t r = 0; r < N; ++r) {
        for (int64_t a = 0; a < A; ++a) run(a, r);
        of_ranks[size_t(r)] = take_gradients();
      }
      add_mean_over_ranks(of_ranks);
    } else {
      for (int64_t a = 0; a < A; ++a) {
        for (int64_t r = 0; r < N; ++r) run(a, r), of_ranks[size_t(r)] = take_gradients();
        add_mean_over_ranks(of_ranks);
      }
    }
    double sum = 0;
    for (const double loss : losses) sum += loss / double(A);
    return sum / double(N);
  }

  // In blocks of 1,024 elements from the start of each rank's shard, then unit by unit, then by
  // rank.
  double squared_norm() {
    double sum = 0;
    for (int r = 0; r < spec_.ranks; ++r) {
      double of_rank = 0;
      for (PlainUnit& u : units_) {
        const int64_t shard = u.size / spec_.ranks;
        of_rank += sum_of_squares(std::span(u.gradient).subspan(size_t(r * shard), size_t(shard)));
      }
      sum += of_rank;
    }
    return sum;
  }

  double sum_of_squares(std::span<const float> values) {
    const Tensor t = Tensor::empty(memory_, MemoryUse::workspace, {int64_t(values.size())});
    kernel::upload<float>(values, t);
    const Tensor square = Tensor::empty(memory_, MemoryUse::workspace, {1}, Dtype::f64);
    kernel::sum_of_squares(t, square);
    return kernel::read(square, 0);
  }

  void update(float gradient_scale) {
    for (PlainUnit& u : units_) {
      const Tensor weights = Tensor::empty(memory_, MemoryUse::parameter, {u.size});
      const Tensor gradient = Tensor::empty(memory_, MemoryUse::gradient, {u.size});
      kernel::upload<float>(u.weights, weights);
      kernel::upload<float>(u.gradient, gradient);
      u.optimizer->update(weights, gradient, spec_.lr, gradient_scale);
      u.weights = kernel::download<float>(weights);
      each_parameter(u, [&](Parameter& p, size_t at) {
        kernel::upload<float>(std::span(u.weights).subspan(at, size_t(p.numel())), p.data);
      });
    }
  }

  EventStream events_;
  Memory memory_{{DeviceKind::cpu}, cpu_backend(), events_};
  const StageRunSpec& spec_;
  AddFirst order_;
  std::unique_ptr<BatchSource> data_;
  OddModel model_;
  std::vector<PlainUnit> units_;
};

}  // namespace

PlainRun train_in_a_plain_loop(const StageRunSpec& spec, AddFirst order) {
  return PlainLoop(spec, order).train();
}

}  // namespace zl::test
