#include "stages/train/gradient_bound.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dist/processes/wire.h"
#include "stages/schedule/full_parameters.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

void append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// Of the coarsest types that gradients pass through: half the distance between 1 and the next
// number, and the smallest number above 0.
struct Grain {
  double unit_roundoff = 0, smallest = 0;
};

Grain grain(const Options& o) {
  Grain coarsest;
  for (const Dtype type : {o.precision, o.grad_accum_dtype.value_or(o.precision),
                           o.communication_data_type.value_or(o.precision)}) {
    const Grain of_type = type == Dtype::bf16  ? Grain{0x1p-8, 0x1p-133}
                          : type == Dtype::f16 ? Grain{0x1p-11, 0x1p-24}
                                               : Grain{0x1p-24, 0x1p-149};
    coarsest.unit_roundoff = std::max(coarsest.unit_roundoff, of_type.unit_roundoff);
    coarsest.smallest = std::max(coarsest.smallest, of_type.smallest);
  }
  return coarsest;
}

// An element may differ by part * rounded + absolute. The second is what subnormal numbers lose.
struct Allowed {
  double part = 0, absolute = 0;
  double overflow = 0;  // an element may be infinite if its sum and what it may differ reach this
};

constexpr double kConversions = 8;  // to and from the types of communication and accumulation

Allowed allowed(const TrainingSpec& spec) {
  const Options& o = spec.engine;
  constexpr double kRowsPerAddition = 512.0 / 4;
  const double rows = double(spec.micro_batch * numel(spec.row_of_inputs())),
               in_fp32 = rows / kRowsPerAddition + spec.ranks,
               per_value = spec.device == DeviceKind::cuda ? 2 : 1,  // a matmul may add two parts
      absolute_roundings = 6 * per_value * double(o.accumulation) + kConversions;
  const auto is_f16 = [&](const std::optional<Dtype>& type) {
    return type.value_or(o.precision) == Dtype::f16;
  };
  return {.part = per_value * grain(o).unit_roundoff + in_fp32 * 0x1p-24,
          .absolute = absolute_roundings * grain(o).smallest / 2,
          .overflow = is_f16(o.grad_accum_dtype) || is_f16(o.communication_data_type)
                          ? 65504.0
                          : double(std::numeric_limits<float>::max())};
}

constexpr size_t kGroup = size_t(Quantized::kGroup);
constexpr double kSmallestScale = std::numeric_limits<float>::min();

// Infinite if one of them is not finite.
double largest_magnitude(const std::vector<float>& values, size_t begin, size_t end) {
  double largest = 0;
  for (size_t i = begin; i < end; ++i)
    largest = std::max(largest, std::isfinite(values[i]) ? std::abs(double(values[i]))
                                                         : std::numeric_limits<double>::infinity());
  return largest;
}

// What zero3_qgz may add to the mean gradient, in units of `part` of allowed(): a group of 256
// elements has the scale max / 7, of which rounding takes half. N ranks do that once each, and
// nodes once more with sums, which half a scale of each rank makes larger: 1/14 + 15/14 * 1/14 of
// what the ranks' largest elements add up to. With n micro-batches in all, that is at most n times
// the largest mean. A scale is never below kSmallestScale: n times 2 halves of it more. Where a
// micro-batch is not finite, its group is not.
std::vector<float> with_four_bits(const TrainingSpec& spec, const std::vector<UnitState>& units,
                                  const GradientMagnitudes& of, double part) {
  const double n = double(spec.engine.accumulation * spec.ranks);
  std::vector<float> magnitude = of.rounded;
  size_t unit = 0;
  for (const UnitState& u : units) {
    const size_t shard = size_t(u.partition.shard());
    for (size_t begin = 0; begin < shard; begin += kGroup) {
      const size_t first = unit + begin, last = unit + std::min(shard, begin + kGroup);
      const double largest = largest_magnitude(of.sum, first, last);
      const double added = n * (largest * 29 / 196 + kSmallestScale) / part;
      for (size_t i = first; i < last; ++i) magnitude[i] += float(added);
    }
    unit += shard;
  }
  return magnitude;
}

// Of a replica's shard, the part that this rank has where all ranks are one replica: part i of N.
// Rank y * p + x holds parts x * R to x * R + R - 1, and sends part x * R + y.
std::vector<float> part_of_rank(Stage& stage, std::vector<float> shard) {
  const int p = stage.shard_group().size(), R = stage.comm().size() / p, rank = stage.comm().rank();
  if (R == 1) return shard;
  const size_t n = shard.size() / size_t(R);
  const char* sent = reinterpret_cast<const char*>(shard.data() + size_t(rank / p) * n);
  const auto all = stage.comm().all_gather_object({sent, n * sizeof(float)}, "gradient shards");
  const std::string& mine = all[size_t(rank % R * p + rank / R)];
  std::vector<float> part(n);
  std::memcpy(part.data(), mine.data(), mine.size());
  return part;
}

// One rank's shards, or a piece of them.
struct Judged {
  std::span<const float> gradient, of_ddp;
  std::span<const float> sum;        // sum|g|
  std::span<const float> magnitude;  // of what is rounded, with what 4 bits may add

  Judged piece(size_t first, size_t n) const {
    return {gradient.subspan(first, n), of_ddp.subspan(first, n), sum.subspan(first, n),
            magnitude.subspan(first, n)};
  }
  // Whether element i is not a number to be compared: beyond f16 in a micro-batch or in ddp, or in
  // this stage's sums, which may be larger than ddp's by as much as is allowed.
  bool overflows(size_t i, const Allowed& allowed) const {
    if (!std::isfinite(of_ddp[i]) || !std::isfinite(magnitude[i])) return true;
    const double most = double(sum[i]) + allowed.part * double(magnitude[i]) + allowed.absolute;
    return !std::isfinite(gradient[i]) && most >= allowed.overflow;
  }
};

// One parameter's piece in this rank's shards.
GradientDeviation deviation_of(const Partition::Piece& piece, const Judged& judged,
                               const Allowed& allowed) {
  const auto [gradient, of_ddp, sum, magnitude] = judged;
  GradientDeviation d{.parameter = piece.parameter->name, .element = piece.first};
  double difference = 0, squares = 0, count = 0, largest = -1;
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (judged.overflows(i, allowed)) continue;
    const double one = std::abs(double(gradient[i]) - double(of_ddp[i]));
    const bool first_nonfinite = !std::isfinite(one) && std::isfinite(difference);
    difference += one * one;
    squares += double(magnitude[i]) * double(magnitude[i]);
    ++count;
    if (!first_nonfinite && (one <= largest || !std::isfinite(largest))) continue;
    largest = one;
    d.element = piece.first + int64_t(i);
    d.value = double(gradient[i]), d.value_of_ddp = double(of_ddp[i]);
  }
  const double bound = allowed.part * std::sqrt(squares) + allowed.absolute * std::sqrt(count),
               part = std::sqrt(difference) / bound;
  d.part_of_bound = difference == 0    ? 0
                    : std::isnan(part) ? std::numeric_limits<double>::infinity()
                                       : part;
  return d;
}

std::string encode(const GradientDeviation& d) {
  WireWriter wire;
  for (const double number : {d.part_of_bound, d.value, d.value_of_ddp}) wire.put(number);
  wire.put(int64_t(d.rank));
  wire.put(d.element);
  return wire.take() + d.parameter;
}

GradientDeviation decode(const std::string& bytes) {
  WireReader reader(bytes);
  GradientDeviation d;
  for (double* number : {&d.part_of_bound, &d.value, &d.value_of_ddp})
    *number = reader.get<double>();
  d.rank = int(reader.get<int64_t>());
  d.element = reader.get<int64_t>();
  d.parameter = bytes.substr(3 * sizeof(double) + 2 * sizeof(int64_t));
  return d;
}

}  // namespace

std::vector<float> gradient_shards(Trainer& trainer) {
  std::vector<float> all;
  Stage& stage = trainer.engine().stage();
  for (const UnitState& u : stage.units())
    append(all, part_of_rank(stage, kernel::download_floats(stage.gradient_shard(u))));
  return all;
}

double weights_part_of_bound(Trainer& trainer) {
  Stage& stage = trainer.engine().stage();
  double most = 0;
  for (UnitState& u : stage.units()) {
    unshard(stage, u);
    const std::vector<float> kept = kernel::download_floats(u.parameter_shard),
                             gathered =
                                 kernel::download_floats(stage.local_shard(u.full_parameter));
    reshard(stage, u);
    const Grain type = grain(trainer.spec().engine);
    for (size_t begin = 0; begin < kept.size(); begin += kGroup) {
      const size_t end = std::min(kept.size(), begin + kGroup);
      const double largest = largest_magnitude(kept, begin, end),
                   half_a_scale = std::max(largest / 127, kSmallestScale) / 2,
                   allowed = half_a_scale * (1 + 0x1p-15) + largest * type.unit_roundoff +
                             type.smallest / 2;
      for (size_t i = begin; i < end; ++i) {
        const double one = std::abs(double(kept[i]) - double(gathered[i]));
        if (one > 0 && std::isfinite(one)) most = std::max(most, one / allowed);
      }
    }
  }
  double of_all = 0;
  for (const std::string& bytes :
       trainer.comm().all_gather_object(WireWriter().put(most).take(), "largest deviation"))
    of_all = std::max(of_all, WireReader(bytes).get<double>());
  return of_all;
}

namespace {

// One unit's gradient on one rank. Vectors are of the full unit.
struct Measured {
  std::vector<float> earlier, sum, rounded;

  explicit Measured(size_t n) : earlier(n), sum(n), rounded(n) {}
  // Values of the buffer from element `first` on. Nothing has been added to one that is 0.
  void see(size_t first, const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      if (const float v = values[i]; v != 0)
        rounded[first + i] += std::abs(v) + std::abs(earlier[first + i] + v);
  }
  void end_micro_batch(const std::vector<float>& gradient) {
    see(0, gradient);
    for (size_t i = 0; i < gradient.size(); ++i) {
      sum[i] += std::abs(gradient[i]);
      earlier[i] += gradient[i];
      // The sum of the means over ranks, and conversions.
      rounded[i] += std::abs(earlier[i]) + float(kConversions) * std::abs(gradient[i]);
    }
  }
};

}  // namespace

// Micro-batch a of the first step is a * N + rank, whatever A is. With one more than A of them,
// none of the first A is reduced before its gradient is read here.
std::vector<GradientMagnitudes> gradient_magnitudes(const TrainingSpec& spec) {
  TrainingSpec alone = spec;
  alone.engine.stage = StageKind::ddp;
  alone.engine.accumulation = spec.engine.accumulation + 1;
  alone.make_stage = {};
  alone.steps = 1;
  alone.eval_every = alone.device_memory = alone.host_memory = 0;
  std::vector<GradientMagnitudes> magnitudes(size_t(spec.ranks));
  std::vector<std::vector<Measured>> measured(size_t(spec.ranks));  // by rank, then unit
  std::vector<int64_t> done(size_t(spec.ranks));
  const auto at_start = [&](Trainer& trainer) {
    std::vector<Measured>& units = measured[size_t(trainer.comm().rank())];
    const std::vector<UnitState>& of_stage = trainer.engine().stage().units();
    for (const UnitState& u : of_stage) units.emplace_back(size_t(u.partition.full()));
    for (size_t i = 0; i < units.size(); ++i)
      for (size_t p = 0; p < of_stage[i].unit->parameters.size(); ++p) {
        Parameter& parameter = *of_stage[i].unit->parameters[p];
        const size_t first = size_t(of_stage[i].partition.offset(p));
        parameter.before_addition = [&parameter, &unit = units[i], first] {
          unit.see(first, kernel::download_floats(parameter.grad));
        };
      }
  };
  const auto after_backward = [&](Trainer& trainer) {
    const size_t rank = size_t(trainer.comm().rank());
    if (++done[rank] > spec.engine.accumulation) return;
    Stage& stage = trainer.engine().stage();
    const auto mean_over_ranks = [&](const std::vector<float>& values, std::vector<float>& to) {
      const Tensor full = Tensor::empty(trainer.memory(), MemoryUse::communication,
                                        {int64_t(values.size())}, Dtype::f32);
      kernel::upload<float>(values, full);
      trainer.comm().reduce_scatter(full, Reduction::mean, {"|gradient|", Purpose::check}).wait();
      append(to, kernel::download<float>(stage.local_shard(full)));
    };
    for (size_t i = 0; i < stage.units().size(); ++i) {
      UnitState& u = stage.units()[i];
      Measured& unit = measured[rank][i];
      unit.end_micro_batch(kernel::download_floats(u.full_gradient));
      stage.clear_gradient(u);
      if (done[rank] < spec.engine.accumulation) continue;
      mean_over_ranks(unit.sum, magnitudes[rank].sum);
      mean_over_ranks(unit.rounded, magnitudes[rank].rounded);
    }
  };
  run_training(alone, {.at_start = at_start, .after_backward = after_backward});
  return magnitudes;
}

GradientDeviation largest_deviation(Trainer& trainer, const std::vector<float>& gradient,
                                    const std::vector<float>& of_ddp,
                                    const GradientMagnitudes& magnitudes) {
  const int rank = trainer.comm().rank();
  const TrainingSpec& spec = trainer.spec();
  const std::vector<UnitState>& units = trainer.engine().stage().units();
  const Allowed allowed_here = allowed(spec);
  const std::vector<float> magnitude =
      spec.engine.stage == StageKind("zero3_qgz")
          ? with_four_bits(spec, units, magnitudes, allowed_here.part)
          : magnitudes.rounded;
  const Judged all{gradient, of_ddp, magnitudes.sum, magnitude};
  GradientDeviation worst{.rank = rank};
  int64_t begin = 0;  // of the unit in this rank's shards
  for (const UnitState& u : units) {
    const int64_t shard = u.partition.full() / spec.ranks;
    for (const Partition::Piece& piece : u.partition.pieces(rank * shard, shard)) {
      const size_t first = size_t(begin + piece.at), n = size_t(piece.count);
      GradientDeviation d = deviation_of(piece, all.piece(first, n), allowed_here);
      d.rank = rank;
      if (d.part_of_bound > worst.part_of_bound) worst = d;
    }
    begin += shard;
  }
  GradientDeviation of_all;  // the first of equals, so that all ranks agree
  for (const std::string& bytes :
       trainer.comm().all_gather_object(encode(worst), "largest deviation"))
    if (const GradientDeviation d = decode(bytes); d.part_of_bound > of_all.part_of_bound)
      of_all = d;
  return of_all;
}

}  // namespace zl
