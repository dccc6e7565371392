#include "stages/train/gradient_bound.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dist/wire.h"
#include "stages/schedule/full_parameters.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

void append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// Half the distance between 1 and the next number of the coarsest type that gradients pass through.
double unit_roundoff(const EngineOptions& o) {
  double largest = 0;
  for (const Dtype type : {o.precision, o.grad_accum_dtype.value_or(o.precision),
                           o.communication_data_type.value_or(o.precision)})
    largest = std::max(largest, type == Dtype::bf16  ? 0x1p-8
                                : type == Dtype::f16 ? 0x1p-11
                                                     : 0x1p-24);
  return largest;
}

double allowed(const TrainingSpec& spec) {
  const double additions = double(spec.engine.accumulation * spec.ranks);
  constexpr double kConversions = 4;  // to and from the types of communication and accumulation
  return 2 * (additions + kConversions) * unit_roundoff(spec.engine);
}

constexpr size_t kGroup = size_t(Quantized::kGroup);

double largest_magnitude(const std::vector<float>& values, size_t begin, size_t end) {
  double largest = 0;
  for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(double(values[i])));
  return largest;
}

// What zero3_qgz may add to the mean gradient, in units of allowed(): a group of 256 elements has
// the scale max / 7, of which rounding takes half. N ranks do that once each, and nodes once more
// with sums, which half a scale of each rank makes larger: 1/14 + 15/14 * 1/14 of what the ranks'
// largest elements add up to. With n micro-batches in all, that is at most n times the largest
// mean.
std::vector<float> with_four_bits(const TrainingSpec& spec, const std::vector<UnitState>& units,
                                  std::vector<float> magnitude, double allowed) {
  const double n = double(spec.engine.accumulation * spec.ranks), factor = n * 29 / 196 / allowed;
  size_t unit = 0;
  for (const UnitState& u : units) {
    const size_t shard = size_t(u.partition.shard());
    for (size_t begin = 0; begin < shard; begin += kGroup) {
      const size_t first = unit + begin, last = unit + std::min(shard, begin + kGroup);
      const double largest = largest_magnitude(magnitude, first, last);
      for (size_t i = first; i < last; ++i) magnitude[i] += float(factor * largest);
    }
    unit += shard;
  }
  return magnitude;
}

// Of a replica's shard, the part that this rank has where all ranks are one replica: part i of N.
// Rank y * p + x holds parts x * R to x * R + R - 1, and sends part x * R + y.
std::vector<float> part_of_rank(Stage& stage, std::vector<float> shard) {
  const int R = stage.replicas(), p = stage.comm().size() / R, rank = stage.comm().rank();
  if (R == 1) return shard;
  const size_t n = shard.size() / size_t(R);
  const char* sent = reinterpret_cast<const char*>(shard.data() + size_t(rank / p) * n);
  const auto all = stage.comm().all_gather_object({sent, n * sizeof(float)}, "gradient shards");
  const std::string& mine = all[size_t(rank % R * p + rank / R)];
  std::vector<float> part(n);
  std::memcpy(part.data(), mine.data(), mine.size());
  return part;
}

// One parameter's piece in this rank's shards: [begin, begin + count) of them.
GradientDeviation deviation_of(const Partition::Piece& piece, std::span<const float> gradient,
                               std::span<const float> of_ddp, std::span<const float> magnitude,
                               double allowed) {
  GradientDeviation d{.parameter = piece.parameter->name, .element = piece.first};
  double difference = 0, bound = 0, largest = -1;
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (!std::isfinite(of_ddp[i]) || !std::isfinite(magnitude[i])) continue;  // an f16 overflow
    const double one = std::abs(double(gradient[i]) - double(of_ddp[i]));
    const bool first_nonfinite = !std::isfinite(one) && std::isfinite(difference);
    difference += one * one;
    bound += double(magnitude[i]) * double(magnitude[i]);
    if (!first_nonfinite && (one <= largest || !std::isfinite(largest))) continue;
    largest = one;
    d.element = piece.first + int64_t(i);
    d.value = double(gradient[i]), d.value_of_ddp = double(of_ddp[i]);
  }
  const double part = std::sqrt(difference) / (allowed * std::sqrt(bound));
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
    const double half_a_scale = 1.0 / 254, unit = unit_roundoff(trainer.spec().engine);
    for (size_t begin = 0; begin < kept.size(); begin += kGroup) {
      const size_t end = std::min(kept.size(), begin + kGroup);
      const double largest = largest_magnitude(kept, begin, end),
                   allowed = largest * (half_a_scale * (1 + 0x1p-15) + unit);
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

// Micro-batch a of the first step is a * N + rank, whatever A is. With one more than A of them,
// none of the first A is reduced before its gradient is read here.
ShardsOfRanks gradient_magnitudes(const TrainingSpec& spec) {
  TrainingSpec alone = spec;
  alone.engine.stage = StageKind::ddp;
  alone.engine.accumulation = spec.engine.accumulation + 1;
  alone.make_stage = {};
  alone.steps = 1;
  alone.eval_every = alone.device_memory = alone.host_memory = 0;
  ShardsOfRanks magnitudes(size_t(spec.ranks));
  std::vector<std::vector<std::vector<float>>> sums(size_t(spec.ranks));  // by rank, then unit
  std::vector<int64_t> done(size_t(spec.ranks));
  const auto after_backward = [&](Trainer& trainer) {
    const size_t rank = size_t(trainer.comm().rank());
    if (++done[rank] > spec.engine.accumulation) return;
    Stage& stage = trainer.engine().stage();
    sums[rank].resize(stage.units().size());
    for (size_t i = 0; i < stage.units().size(); ++i) {
      UnitState& u = stage.units()[i];
      const std::vector<float> gradient = kernel::download_floats(u.full_gradient);
      std::vector<float>& sum = sums[rank][i];
      sum.resize(gradient.size());
      for (size_t e = 0; e < sum.size(); ++e) sum[e] += std::abs(gradient[e]);
      stage.clear_gradient(u);
      if (done[rank] < spec.engine.accumulation) continue;
      const Tensor full = Tensor::empty(trainer.memory(), MemoryUse::communication,
                                        {int64_t(sum.size())}, Dtype::f32);
      kernel::upload<float>(sum, full);
      trainer.comm().reduce_scatter(full, Reduction::mean, {"|gradient|", Purpose::check}).wait();
      append(magnitudes[rank], kernel::download<float>(stage.local_shard(full)));
    }
  };
  run_training(alone, {.after_backward = after_backward});
  return magnitudes;
}

GradientDeviation largest_deviation(Trainer& trainer, const std::vector<float>& gradient,
                                    const std::vector<float>& of_ddp,
                                    const std::vector<float>& magnitudes) {
  const int rank = trainer.comm().rank();
  const TrainingSpec& spec = trainer.spec();
  const std::vector<UnitState>& units = trainer.engine().stage().units();
  const std::vector<float> magnitude = spec.engine.stage == StageKind::zero3_qgz
                                           ? with_four_bits(spec, units, magnitudes, allowed(spec))
                                           : magnitudes;
  GradientDeviation worst{.rank = rank};
  int64_t begin = 0;  // of the unit in this rank's shards
  for (const UnitState& u : units) {
    const int64_t shard = u.partition.full() / spec.ranks;
    for (const Partition::Piece& piece : u.partition.pieces(rank * shard, shard)) {
      const size_t first = size_t(begin + piece.at), n = size_t(piece.count);
      GradientDeviation d = deviation_of(piece, std::span(gradient).subspan(first, n),
                                         std::span(of_ddp).subspan(first, n),
                                         std::span(magnitude).subspan(first, n), allowed(spec));
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
